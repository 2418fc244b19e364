-- registry/withdraw.lua: one function's part of a worker's leave, of its silence, or of its registering again without this function.
-- The worker no longer counts among those that offer the function. What it holds of it stays its own.
-- KEYS  definition  hash        workers  sorted set
-- ARGV  worker      who         silent_since_ms  '' = in any case; else only if its latest heartbeat is not later than this
-- reply {'withdrawn'} | {'alive'}
local definition_key, workers = KEYS[1], KEYS[2]
local worker, silent_since = ARGV[1], ARGV[2]
if silent_since ~= '' then
  local heartbeat = redis.call('ZSCORE', workers, worker)
  if heartbeat and tonumber(heartbeat) > tonumber(silent_since) then return {'alive'} end
end
redis.call('HDEL', definition_key, 'offer:' .. worker)
redis.call('ZREM', workers, worker)
return {'withdrawn'}
