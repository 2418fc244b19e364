-- registry/offer.lua = RegistryStore::define and redefine, and one function's part of RegistryStore::register.
-- Writes a definition, makes sure that the stream and its group exist, and notes that a worker offers the function.
-- KEYS  definition  hash        stream  stream        workers  sorted set
--       legacy      hash        what is remembered about the stream, see legacy/group.lua
-- ARGV  group       consumer group, '' = it has no stream
--       mode        'replace': the latest definition counts | 'adopt': one that exists is left alone
--                   | 'expect': nothing is written unless `expected` is there
--       json        the definition
--       backlog     max_backlog, '-' = no limit         concurrent   max_concurrent, '' = no limit
--       worker      '' = nobody offers it               concurrency  of the worker's offer, '' = it counts for itself
--       now_ms      the worker's heartbeat              shards       over how many more streams it is spread, '' = none
--       expected    the definition that 'expect' replaces, byte for byte
-- reply {'changed' | 'same' | 'other', 'changed' | 'same'}: the definition, the offer; 'other': it is not the one expected
local definition_key, stream, workers = KEYS[1], KEYS[2], KEYS[3]
local group, mode, json, backlog, concurrent = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local worker, concurrency, now, shards = ARGV[6], ARGV[7], ARGV[8], ARGV[9]

if mode == 'expect' and redis.call('HGET', definition_key, 'definition') ~= ARGV[10] then return {'other', 'same'} end

-- A worker and its callers meet at the group, so that it is there before the worker is announced.
-- A stream key that holds something else is the trouble of legacy callers alone: the doctor tells of it.
if group ~= '' and not wrong_kind({ stream, 'stream', KEYS[4], 'hash' }) then ensure_group(stream, group, KEYS[4], now) end

-- Writes a field, or removes it; says whether that made a difference.
local function put(field, value)
  local before = redis.call('HGET', definition_key, field) or ''
  if before == value then return false end
  if value == '' then
    redis.call('HDEL', definition_key, field)
  else
    redis.call('HSET', definition_key, field, value)
  end
  return true
end

local defined = 'same'
local exists = redis.call('HEXISTS', definition_key, 'definition') == 1
if not (exists and mode == 'adopt') then
  for field, value in pairs({ definition = json, max_backlog = backlog, max_concurrent = concurrent, shards = shards }) do
    if put(field, value) then defined = 'changed' end
  end
end

local offered = 'same'
if worker ~= '' then
  local known = redis.call('ZSCORE', workers, worker)
  if put('offer:' .. worker, concurrency) or not known then offered = 'changed' end
  redis.call('ZADD', workers, now, worker)
end
return {defined, offered}
