-- trim: removes from a stream what all its groups have read and acknowledged, as far as that is a prefix. Never by length.
--
-- KEYS  1 stream  2 counts  3 ready
-- ARGV  none
-- gives {how many entries were removed, how many are left, how many calls should wait in it}
local function field(flat, name)
  for i = 1, #flat, 2 do if flat[i] == name then return flat[i + 1] end end
end

-- The smallest place that must stay, as milliseconds and number.
local function parse(place)
  local ms, n = string.match(place, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(n)
end
local function before(a, b)
  local a_ms, a_n = parse(a)
  local b_ms, b_n = parse(b)
  return a_ms < b_ms or (a_ms == b_ms and a_n < b_n)
end

if redis.call('EXISTS', KEYS[1]) == 0 then return { 0, 0, 0 } end
local keep
for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local place
  if field(group, 'pending') > 0 then
    place = redis.call('XPENDING', KEYS[1], field(group, 'name'))[2]
  else
    local ms, n = parse(field(group, 'last-delivered-id'))
    place = string.format('%.0f-%.0f', ms, n + 1)
  end
  if not keep or before(place, keep) then keep = place end
end
local removed = 0
if keep then removed = redis.call('XTRIM', KEYS[1], 'MINID', keep) end
local queued = tonumber(redis.call('HGET', KEYS[2], 'queued') or 0) - redis.call('ZCARD', KEYS[3])
return { removed, redis.call('XLEN', KEYS[1]), queued }
