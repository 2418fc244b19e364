-- batches/drained.lua = BatchSource::drained. Removes elements that were dealt with from the head of what is aside.
-- An element keeps its number until this call, so whoever dies before it deals with the same elements under the same numbers again.
-- KEYS  1 list    towpath:{queue:incoming}:drain      taken aside and not dealt with
--       2 string  towpath:{queue:incoming}:drained    how many were ever dealt with
-- ARGV  1 the number that the caller started from  2 how many to remove, at least 1
-- reply {'removed', number of the next} | {'moved', number of the first that is aside}: another was faster
local at = tonumber(redis.call('GET', KEYS[2]) or '0')
if at ~= tonumber(ARGV[1]) then return {'moved', at} end
local gone = redis.call('LPOP', KEYS[1], ARGV[2])
return {'removed', redis.call('INCRBY', KEYS[2], gone and #gone or 0)}
