-- missed: notes how far the import of missed entries has come, if the ranges are still as the host saw them.
--
-- KEYS  1 legacy
-- ARGV  1 the ranges as they were seen  2 the ranges now, or `` if there are none
-- gives nothing
if redis.call('HGET', KEYS[1], 'missed') ~= ARGV[1] then return end
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], 'missed')
else
  redis.call('HSET', KEYS[1], 'missed', ARGV[2])
end
