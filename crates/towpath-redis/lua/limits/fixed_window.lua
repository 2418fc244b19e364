-- limits/fixed_window.lua, a part of limits/take.lua. Rust twin: towpath-core limit/fixed_window.rs
-- The key is the seed's: an integer that old callers INCR, with a TTL that they set anew at every call.
local function fixed_window(key, cost, window, number, limit, _, counts_denied)
  local kept = redis.pcall('GET', key) or '0'
  local before = type(kept) == 'string' and string.match(kept, '^%-?%d+$') and tonumber(kept)
  if not before then return nil end
  local until_next = window * (number + 1) - now
  local add = cost < 0 and math.max(cost, -before) or cost
  local ok = cost <= 0 or before + cost <= limit
  local function write()
    redis.call('INCRBY', key, int(add))
    if redis.call('PTTL', key) < 0 then redis.call('PEXPIRE', key, kept_ms(window - 1000000)) end
  end
  local retry, count = -1, before + add
  if not ok then
    retry = cost > limit and -2 or until_next
    if counts_denied then write() else count = before end
  end
  return ok, math.max(0, limit - count), retry, count > 0 and until_next or 0, 0, count, add ~= 0 and write or nil
end

