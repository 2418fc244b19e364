-- batches/finish.lua = BatchStore::batch_finish, behind place.lua. Rust twin: towpath-core batch/finish.rs
-- Settles a claimed batch: delivered, try again later, given back, or dead letter. Only the current token may.
-- ARGV  6 batch id  7 token  8 ack | retry | release | dead  9 delay_ms of a retry  10 the dead letter
-- reply {'done'} | {'lost'}: another has it, or it is settled; nothing was touched
local batch_id, token, verb = ARGV[6], ARGV[7], ARGV[8]
local C, CH = own .. 'c:' .. batch_id, own .. 'ch:' .. batch_id
local h = redis.call('HMGET', CH, 'tok', 'bk')
if token == '' or h[1] ~= token then return {'lost'} end
redis.call('ZCARD', FLY)
if verb == 'retry' or verb == 'release' then
  local at = now
  if verb == 'retry' then
    at = now + tonumber(ARGV[9])
  else
    redis.call('HINCRBY', CH, 'att', -1) -- the next claim counts it again
  end
  redis.call('HSET', CH, 'tok', '')
  redis.call('ZADD', FLY, int(at), batch_id)
  wake(at)
  return {'done'}
end
local bk = h[2]
local FL = own .. 'fl:' .. bk
local marker, open = redis.call('GET', FL), read_open(bk)
if verb == 'dead' then redis.call('RPUSH', DLQ, ARGV[10]) end
redis.call('DEL', C, CH)
redis.call('ZREM', FLY, batch_id)
if marker == batch_id then
  redis.call('DEL', FL)
elseif marker and redis.call('ZSCORE', FLY, marker) then
  return {'done'} -- the end of that one arms what gathered meanwhile
end
if open then
  redis.call('ZADD', DUE, sec(open.deadline), bk)
  wake(open.deadline)
end
return {'done'}
