-- limits/sliding_log.lua, a part of limits/take.lua. Rust twin: towpath-core limit/sliding_log.rs
-- The key is a sorted set: one member per unit, '<us>-<number>', by the instant at which it was taken. It counts until us + window, exclusive.
local function sliding_log(key, cost, window, _, limit)
  local from = '(' .. int(now - window)
  local before = redis.pcall('ZCOUNT', key, from, '+inf')
  if type(before) ~= 'number' then return nil end
  local back = cost < 0 and math.min(before, -cost) or 0
  local ok, retry, count, write = cost <= 0 or before + cost <= limit, -1, before, nil
  if not ok and cost > limit then
    retry = -2
  elseif not ok then
    local leaves = redis.call('ZRANGEBYSCORE', key, from, '+inf', 'WITHSCORES', 'LIMIT', int(before + cost - limit - 1), 1)
    retry = tonumber(leaves[2]) + window - now
  elseif cost ~= 0 then
    count = before + (cost > 0 and cost or -back)
    write = function()
      redis.call('ZREMRANGEBYSCORE', key, '-inf', int(now - window))
      if back > 0 then redis.call('ZPOPMAX', key, int(back)) end
      local last = redis.call('ZREVRANGEBYSCORE', key, int(now), int(now), 'LIMIT', 0, 1)[1]
      local number = last and tonumber(string.match(last, '-(%d+)$')) or 0
      for unit = 1, cost do redis.call('ZADD', key, int(now), string.format('%d-%06d', now, number + unit)) end
      redis.call('PEXPIRE', key, kept_ms(window))
    end
  end
  local reset = 0
  if cost > 0 and ok then
    reset = window
  else
    local newest = redis.call('ZREVRANGEBYSCORE', key, '+inf', '-inf', 'WITHSCORES', 'LIMIT', int(back), 1)[2]
    if newest then reset = math.max(0, tonumber(newest) + window - now) end
  end
  return ok, math.max(0, limit - count), retry, reset, 0, count, write
end

