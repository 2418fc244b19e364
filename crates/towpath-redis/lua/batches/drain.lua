-- batches/drain.lua = BatchSource::drain. Takes elements of an old producer's list aside, and says what is aside.
-- KEYS  1 list    queue:incoming                      what old producers RPUSH to
--       2 list    towpath:{queue:incoming}:drain      taken aside and not dealt with
--       3 string  towpath:{queue:incoming}:drained    how many were ever dealt with: the number of the first that is aside
-- ARGV  1 so many may be aside
-- reply {number of the first, {element, ..}}
local aside = redis.call('LLEN', KEYS[2])
local first = tonumber(redis.call('GET', KEYS[3]) or '0')
while aside < tonumber(ARGV[1]) do
  if not redis.call('LMOVE', KEYS[1], KEYS[2], 'LEFT', 'RIGHT') then break end
  aside = aside + 1
end
if aside == 0 then return {first, {}} end
return {first, redis.call('LRANGE', KEYS[2], 0, -1)}
