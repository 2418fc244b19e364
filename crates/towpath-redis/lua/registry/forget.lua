-- registry/forget.lua = RegistryStore::forget. Rust twin: the model's `forget_function`.
-- Forgets a function that no worker offers, healthy or not, and of which no call is queued, delayed, running or dead.
-- Its calls that are over, its stream and its group stay: the first until their retention ends, the others because old peers may use them.
-- KEYS  definition  hash      workers  sorted set      counts  hash      index  sorted set
-- ARGV  none
-- reply {'unknown'} | {'in use'} | {'forgotten', 'empty' | 'calls'}: whether it still has calls
local definition_key, workers, counts, index = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
if redis.call('HEXISTS', definition_key, 'definition') == 0 then return {'unknown'} end
if redis.call('ZCARD', workers) > 0 then return {'in use'} end
for _, count in ipairs(redis.call('HMGET', counts, 'queued', 'delayed', 'running', 'dead')) do
  if count and tonumber(count) ~= 0 then return {'in use'} end
end
redis.call('DEL', definition_key)
if redis.call('EXISTS', index) == 1 then return {'forgotten', 'calls'} end
return {'forgotten', 'empty'}
