-- consumers: removes consumers of a group that hold no entry.
--
-- KEYS  1 stream
-- ARGV  1 group, then the consumers
-- gives nothing
for i = 2, #ARGV do
  local held = redis.pcall('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[i])
  if not held.err and #held == 0 then redis.pcall('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[i]) end
end
