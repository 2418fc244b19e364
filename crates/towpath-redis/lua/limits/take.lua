-- limits/take.lua, the last part: goes through the checks. The contract is in limits/clock.lua, which begins the script.
-- A step of an algorithm is asked (key, cost, a, b, capacity, max_wait, counts_denied) and says ok, remaining, retry, reset, wait, count and what
-- writes it down; nil where the key holds something else. Every check passes here, so there is no table where a local does.
local steps = {g = gcra, w = fixed_window, c = sliding_counter, l = sliding_log}
local reply, said = {now}, 1

local function in_another_window(at, count)
  for rule = at, at + (count - 1) * 5, 5 do
    if ARGV[rule] == 'w' and tonumber(ARGV[rule + 2]) ~= math.floor(now / tonumber(ARGV[rule + 1])) then return true end
  end
  return false
end

-- Asks every rule before anything is written, and notes what each says behind the place of the verdict. Gives the verdicts of those that
-- may deny and of those that watch, and what they want to write.
local function ask(at, place, count, cost, max_wait, commit)
  local allowed, watchers_allow, writes, watchers_write = true, true, {}, {}
  local word = said + 1
  reply[word] = 'denied' -- a table without a hole stays a list
  for i = 1, count do
    local flags = ARGV[at + 4]
    local counts_denied = commit and flags ~= '' and string.find(flags, 'd', 1, true)
    local ok, remaining, retry, reset, wait, units, write = steps[ARGV[at]](
      KEYS[place + i], cost, tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), max_wait, counts_denied)
    if ok == nil then return nil, place + i end
    local wanted = writes
    if flags ~= '' and string.find(flags, 's', 1, true) then
      watchers_allow, wanted = watchers_allow and ok, watchers_write
    else
      allowed = allowed and ok
    end
    if ok and write then wanted[#wanted + 1] = write end
    reply[word + 1], reply[word + 2], reply[word + 3] = ok and 1 or 0, remaining, retry
    reply[word + 4], reply[word + 5], reply[word + 6] = reset, wait, units
    word, at = word + 6, at + 5
  end
  return allowed, watchers_allow, writes, watchers_write
end

local at, place = 3, 0
for _ = 1, tonumber(ARGV[2]) do
  local verb, count = ARGV[at], tonumber(ARGV[at + 1])
  local commit = verb == 'commit'
  if in_another_window(at + 4, count) then
    said = said + 1
    reply[said] = 'rebucket'
  else
    local allowed, watchers_allow, writes, watchers_write = ask(at + 4, place, count, tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), commit)
    if allowed == nil then
      reply[said + 1], reply[said + 2] = 'corrupt', watchers_allow
      for word = said + 3, #reply do reply[word] = nil end
      said = said + 2
    else
      if allowed then reply[said + 1] = 'allowed' end
      said = said + 1 + 6 * count
      if commit and allowed then for i = 1, #writes do writes[i]() end end
      if commit and watchers_allow then for i = 1, #watchers_write do watchers_write[i]() end end
      if verb == 'reset' then for i = 1, count do redis.call('DEL', KEYS[place + i]) end end
    end
  end
  at, place = at + 4 + count * 5, place + count
end
return reply
