-- limits/gcra.lua, a part of limits/take.lua. Rust twin: towpath-core limit/gcra.rs
-- The key holds '<us> <part> <parts>': the next unit would be due at us + part / parts microseconds.
-- Products stay below 2^53, since the rule was checked; what a changed rule left behind is compared by its whole part first.

-- ceil(part * den / parts) for numbers up to 10^9, whose product a double would round.
local function rescaled(part, den, parts)
  local high, low = floor(den / 32768), den % 32768
  local upper = part * high
  local rest = (upper % parts) * 32768 + part * low
  return floor(upper / parts) * 32768 + ceil(rest / parts)
end

-- Says ok, what the key held, and when the next unit is due from now on; nil where the key holds something else.
local function gcra(key, cost, num, den, capacity, max_wait)
  local base_us, base_part = now, 0
  local kept = pcall('GET', key)
  if kept then
    local us, part, parts
    if type(kept) == 'string' then us, part, parts = match(kept, '^(%d+) (%d+) ([1-9]%d*)$') end
    if not us then return nil end
    us, part, parts = tonumber(us), tonumber(part), tonumber(parts)
    if parts ~= den then
      part = rescaled(part, den, parts)
      if part >= den then us, part = us + 1, 0 end
    end
    if us >= now then base_us, base_part = us, part end
  end

  local step = cost * num
  local whole = floor(step / den)
  local us, part = base_us + whole, base_part + (step - whole * den)
  if part >= den then us, part = us + 1, part - den end
  if cost < 0 then
    if us < now then us, part = now, 0 end
  elseif cost > 0 then
    local room = capacity * num
    local room_us = floor(room / den)
    local ahead, is_over = us - now, part > room - room_us * den
    if ahead > room_us or (ahead == room_us and is_over) then
      local wait = ahead - room_us + (is_over and 1 or 0)
      if cost > capacity or wait > max_wait then return false, kept end
    end
  end
  return true, kept, us, part
end

local function write_gcra(key, us, part, den)
  call('SET', key, format('%d %d %d', us, part, den), 'EX', kept_s(us - now))
end

