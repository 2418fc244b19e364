-- locks/swap.lua: a grant or a release that the process has decided on its own, by the same law, from the record as it last wrote it.
-- Nothing happens when record or counter differ from that: then acquire.lua or release.lua decide.
-- KEYS  1 C  2 M  3 S  4 L (left out in a Cluster)      see scope.lua
-- ARGV  1 record as it was  2 counter as it was ('' = none)  3 record  4 its life, ms
--       5 counter ('' = counter and sidecar go)  6 sidecar  7 life of both, ms  8 lease end  9 scope
--       10 an execution's set ('' = none)  11 its life, ms
-- reply 1 = done, 0 = something differs
local C, M, S, L = unpack(KEYS)
local before = redis.call('GET', C)
if redis.call('GET', S) ~= ARGV[1] or (before or '') ~= ARGV[2] or before == '' then return 0 end
redis.call('SET', S, ARGV[3], 'PX', ARGV[4])
local counter, set = ARGV[5], ARGV[10]
if counter == '' then
  redis.call('DEL', C, M)
  if L then redis.pcall('ZREM', L, ARGV[9]) end
  if set ~= '' then redis.pcall('SREM', set, 'lock:' .. ARGV[9]) end
  return 1
end
redis.call('SET', C, counter, 'PX', ARGV[7])
redis.call('SET', M, ARGV[6], 'PX', ARGV[7])
if L then redis.pcall('ZADD', L, ARGV[8], ARGV[9]) end
if set ~= '' then
  redis.pcall('SADD', set, 'lock:' .. ARGV[9])
  if redis.call('PTTL', set) < tonumber(ARGV[11]) then redis.call('PEXPIRE', set, ARGV[11]) end
end
return 1
