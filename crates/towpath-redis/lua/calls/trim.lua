-- trim: removes from a stream what all its groups have read and acknowledged, as far as that is a prefix. Never by length.
--
-- KEYS  1 stream  2 counts  3 ready  4 aside
-- ARGV  1 behind the prefix, so many entries are looked at one by one: `0` none
-- gives {how many entries were removed, how many of those left may be calls that wait, how many calls should wait in it}
-- What runs and is still in the stream does not wait. Entries of old callers and what is acknowledged but not yet trimmed count as if they
-- did: only more waiting calls than entries says for sure that some are lost.
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

local keep
local groups = redis.call('EXISTS', KEYS[1]) == 1 and redis.call('XINFO', 'GROUPS', KEYS[1]) or {}
for _, group in ipairs(groups) do
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

-- Beside old workers a long call must not keep what they finished after it: nothing but its place tells it from a new one.
local look_at = tonumber(ARGV[1])
if look_at > 0 and #groups == 1 and field(groups[1], 'pending') > 0 then
  local to, pending, gone = field(groups[1], 'last-delivered-id'), {}, {}
  local page = redis.call('XPENDING', KEYS[1], field(groups[1], 'name'), keep, to, look_at)
  for _, one in ipairs(page) do pending[one[1]] = true end
  if #page == look_at then to = page[look_at][1] end
  for _, entry in ipairs(redis.call('XRANGE', KEYS[1], keep, to, 'COUNT', look_at)) do
    if not pending[entry[1]] then gone[#gone + 1] = entry[1] end
  end
  if #gone > 0 then removed = removed + redis.call('XDEL', KEYS[1], unpack(gone)) end
end
local counts = redis.call('HMGET', KEYS[2], 'queued', 'running')
local should_wait = tonumber(counts[1] or 0) - redis.call('ZCARD', KEYS[3])
local runs_there = tonumber(counts[2] or 0) - redis.call('SCARD', KEYS[4])
return { removed, redis.call('XLEN', KEYS[1]) - runs_there, should_wait }
