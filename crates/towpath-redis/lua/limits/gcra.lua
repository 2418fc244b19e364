-- limits/gcra.lua, a part of limits/take.lua. Rust twin: towpath-core limit/gcra.rs
-- The key holds '<us> <part> <parts>': the next unit would be due at us + part / parts microseconds.
-- Products stay below 2^53, since the rule was checked; what a changed rule left behind is compared by its whole part first.
local EXACT_MAX = 9007199254740991

-- ceil(part * den / parts) for numbers up to 10^9, whose product a double would round.
local function rescaled(part, den, parts)
  local high, low = math.floor(den / 32768), den % 32768
  local upper = part * high
  local rest = (upper % parts) * 32768 + part * low
  return math.floor(upper / parts) * 32768 + math.ceil(rest / parts)
end

local function gcra(key, cost, num, den, capacity, max_wait)
  local base_us, base_part = now, 0
  local kept = redis.pcall('GET', key)
  if kept then
    local us, part, parts
    if type(kept) == 'string' then us, part, parts = string.match(kept, '^(%d+) (%d+) ([1-9]%d*)$') end
    if not us then return nil end
    us, part, parts = tonumber(us), tonumber(part), tonumber(parts)
    if parts ~= den then
      part = rescaled(part, den, parts)
      if part >= den then us, part = us + 1, 0 end
    end
    if us >= now then base_us, base_part = us, part end
  end

  local step = cost * num
  local whole = math.floor(step / den)
  local us, part = base_us + whole, base_part + (step - whole * den)
  if part >= den then us, part = us + 1, part - den end
  local room = capacity * num
  local room_us = math.floor(room / den)
  local room_part = room - room_us * den
  local ok, retry, wait = true, -1, 0
  if cost < 0 then
    if us < now then us, part = now, 0 end
  elseif cost > 0 and (us - now > room_us or (us - now == room_us and part > room_part)) then
    wait = us - now - room_us + (part > room_part and 1 or 0)
    if cost > capacity or wait > max_wait then
      ok, retry, wait = false, cost > capacity and -2 or wait, 0
      us, part = base_us, base_part
    end
  end
  local ahead, load = us - now, EXACT_MAX
  if ahead < math.floor(EXACT_MAX / den) then load = ahead * den + part end
  local reset = ahead + (part > 0 and 1 or 0)
  local write
  if cost ~= 0 then
    write = function()
      redis.call('SET', key, string.format('%d %d %d', us, part, den), 'PX', kept_ms(reset))
    end
  end
  return ok, math.max(0, math.floor((room - load) / num)), retry, reset, wait, math.ceil(load / num), write
end

