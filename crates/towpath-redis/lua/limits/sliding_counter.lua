-- limits/sliding_counter.lua, a part of limits/take.lua. Rust twin: towpath-core limit/sliding_counter.rs
-- The key is a hash: `a` length of a window, `w` its number, `c` its count, `p` the count of the one before. Scaled by the window's length,
-- everything is an integer below 2^53.
local function sliding_counter(key, cost, a, _, limit)
  local kept = redis.pcall('HMGET', key, 'a', 'w', 'c', 'p')
  if kept.err then return nil end
  local window = math.floor(now / a)
  local current, previous = 0, 0
  if tonumber(kept[1] or '') == a then
    local age = window - (tonumber(kept[2] or '') or -2)
    if age == 0 then current, previous = tonumber(kept[3] or ''), tonumber(kept[4] or '') end
    if age == 1 then previous = tonumber(kept[3] or '') end
    if not current or not previous then return nil end
  end
  local elapsed = now - window * a
  local used = previous * (a - elapsed) + current * a
  local ok, retry, write = cost <= 0 or used <= (limit - cost) * a, -1, nil
  if ok then
    local taken = math.max(0, current + cost)
    used, current = used + (taken - current) * a, taken
    if cost ~= 0 then
      write = function()
        redis.call('HSET', key, 'a', int(a), 'w', int(window), 'c', int(taken), 'p', int(previous))
        redis.call('PEXPIRE', key, kept_ms(2 * a))
      end
    end
  elseif cost > limit then
    retry = -2
  elseif current + cost <= limit then
    retry = math.ceil((used - (limit - cost) * a) / previous)
  else
    retry = a - elapsed + math.max(0, math.ceil((current + cost - limit) * a / current))
  end
  local reset = (current > 0 and 2 * a - elapsed) or (previous > 0 and a - elapsed) or 0
  return ok, math.max(0, math.floor((limit * a - used) / a)), retry, reset, 0, math.ceil(used / a), write
end

