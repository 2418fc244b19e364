-- remove: removes a call whose record cannot be read, and every line that names it, if the record is still the one that was seen.
--
-- KEYS  1 calls, then the sets that may name it: 2 queue  3 running  4 delayed  5 exported  6 dead  7 deadlines  8 parked
-- ARGV  1 id  2 the record  3 name of the field beside it that holds the request  4 the same of the progress report
-- gives 1 if it is gone
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
-- A set that cannot be written holds something else than lines.
for i = 2, 7 do redis.pcall('ZREM', KEYS[i], ARGV[1]) end
redis.pcall('SREM', KEYS[8], ARGV[1])
redis.call('HDEL', KEYS[1], ARGV[1], ARGV[3], ARGV[4])
return 1
