-- registry/forget.lua = RegistryStore::forget. Rust twin: the model's `forget_function`.
-- Forgets a function that no worker offers, healthy or not, and of which no call is queued, delayed, running or dead.
-- Its calls that are over, its stream and its group stay: the first until their retention ends, the others because legacy peers may use them.
-- KEYS  definition  hash      workers, deadlines, dead, buckets  sorted sets
-- ARGV  ended       start of the names of the buckets of ended calls
-- reply {'unknown'} | {'in use'} | {'forgotten', 'empty' | 'calls'}: whether it still has calls
local definition_key, workers, deadlines, dead, buckets = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
if redis.call('HEXISTS', definition_key, 'definition') == 0 then return {'unknown'} end
if redis.call('ZCARD', workers) > 0 or redis.call('ZCARD', deadlines) > 0 or redis.call('ZCARD', dead) > 0 then return {'in use'} end
redis.call('DEL', definition_key)
for _, bucket in ipairs(redis.call('ZRANGE', buckets, 0, -1)) do
  if redis.call('EXISTS', ARGV[1] .. bucket) == 1 then return {'forgotten', 'calls'} end
end
return {'forgotten', 'empty'}
