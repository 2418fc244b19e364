-- reserve: makes an id a function's, if no other function has it, or lets it go.
--
-- A reservation is `scope \n name \t instant, ms \t number of uses`: it changes with every submit that relies on it.
--
-- KEYS  the reservation
-- ARGV  1 the function, `scope \n name`  2 now, ms  3 how long the reservation lives at least, ms; 0 = it is let go
--       4 the reservation as it was seen: it is taken over, or let go, if it is still so; '' = none
-- gives {`ours`, reservation, `1` if it is new} · {`of another`, reservation, its instant} · {`gone`}
local key, function_name, now, life, seen = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local there = redis.call('GET', key)
if life == 0 then
  if there == seen then redis.call('DEL', key) end
  return { 'gone' }
end
local holder, instant, uses = string.match(there or '', '^([^\t]*)\t?(%d*)\t?(%d*)$')
if there and there ~= seen and holder ~= function_name then return { 'of another', there, instant or '' } end
local is_new = holder ~= function_name
local reservation = function_name .. '\t' .. now .. '\t' .. (is_new and '1' or string.format('%.0f', (tonumber(uses) or 0) + 1))
local left = is_new and -2 or redis.call('PTTL', key)
if left == -1 then -- of a dead letter: it stays until a person deals with it
  redis.call('SET', key, reservation)
else
  redis.call('SET', key, reservation, 'PX', string.format('%.0f', math.max(left, life)))
end
return { 'ours', reservation, is_new and '1' or '0' }
