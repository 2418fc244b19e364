-- batches/claim.lua = BatchStore::batch_claim, behind place.lua. Rust twin: towpath-core batch/claim.rs
-- Closes one due batch and leases it. What arrives later belongs to the next batch; what does not fit is due at once.
-- ARGV  6 bk  7 lease_ms  8 token  9 batch id  10 max_messages  11 max_bytes  12 serial 1|0
-- reply {'claimed', lease end, first, last, reason, {message, ..}}
--       {'skip', 'gone' | 'not_due' | 'in_flight' | 'empty'}
local bk, lease, token, batch_id = ARGV[6], tonumber(ARGV[7]), ARGV[8], ARGV[9]
local max_messages, max_bytes, serial = tonumber(ARGV[10]), tonumber(ARGV[11]), ARGV[12] == '1'
local M, C, CH = lists .. bk, own .. 'c:' .. batch_id, own .. 'ch:' .. batch_id

if redis.call('EXISTS', CH) == 1 then return {'skip', 'gone'} end
local due = redis.call('ZSCORE', DUE, bk)
if not due then return {'skip', 'gone'} end
if ms(due) > now then return {'skip', 'not_due'} end
if serial and flying(bk) then
  redis.call('ZREM', DUE, bk)
  return {'skip', 'in_flight'}
end
local open, counted = read_open(bk)
if not open then
  forget_open(bk, counted)
  return {'skip', 'empty'}
end
redis.call('ZCARD', FIRST)
redis.call('ZCARD', FLY)

local reason, taken = open.reason, 0
if open.n <= max_messages and (open.bytes <= max_bytes or open.n == 1) then
  redis.call('RENAME', M, C)
  taken = open.n
else
  local bytes = 0
  redis.call('DEL', C)
  while taken < max_messages do
    local message = redis.call('LINDEX', M, 0)
    if not message or (taken > 0 and bytes + #message > max_bytes) then break end
    redis.call('LMOVE', M, C, 'LEFT', 'RIGHT')
    bytes, taken = bytes + #message, taken + 1
  end
  open.bytes = math.max(0, open.bytes - bytes)
end
local first = open.first
if taken == open.n then
  forget_open(bk, open.counted)
else
  reason = taken >= max_messages and 'max_messages' or 'max_bytes'
  open.n, open.first, open.deadline, open.reason, open.sealed = open.n - taken, now, now, reason, true
  keep_open(bk, open)
  if serial then redis.call('ZREM', DUE, bk) else redis.call('ZADD', DUE, sec(now), bk) end
end
redis.call('HSET', CH, 'v', 1, 'bk', bk, 'tok', token, 'att', 1, 'f', int(first), 'l', int(open.last), 'r', reason)
redis.call('ZADD', FLY, int(now + lease), batch_id)
if serial then redis.call('SET', own .. 'fl:' .. bk, batch_id) end
return {'claimed', now + lease, first, open.last, reason, redis.call('LRANGE', C, 0, -1)}
