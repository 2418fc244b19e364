-- limits/take.lua, the last part: goes through the checks. The contract is in limits/clock.lua, which begins the script.
-- A step of an algorithm is asked (key, cost, a, b, capacity, max_wait, counts_denied) and says ok, remaining, retry, reset, wait, count and what
-- writes it down; nil where the key holds something else. Every check passes here, so nothing is made anew for it that can be used again.
local steps = {w = fixed_window, c = sliding_counter, l = sliding_log}
local reply, said, place = {now}, 1, 0
-- The rules of the present run, and what each of them said to the present check.
local step, a, b, capacity, counts_denied, watches = {}, {}, {}, {}, {}, {}
local us, part, write = {}, {}, {}

-- Reads the rules of a run. Gives whether one of them is in another window than its key.
local function read_rules(at, count)
  local in_another_window = false
  for i = 1, count do
    local flags = ARGV[at + 4]
    step[i], a[i], b[i], capacity[i] = steps[ARGV[at]], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
    counts_denied[i], watches[i] = string.find(flags, 'd', 1, true), string.find(flags, 's', 1, true)
    if ARGV[at] == 'w' and b[i] ~= floor(now / a[i]) then in_another_window = true end
    at = at + 5
  end
  return in_another_window
end

-- Asks every rule before anything is written, and notes what each says behind the place of the verdict. Gives the verdicts of those that may
-- deny and of those that watch; nil and a place where a key holds something else.
local function ask(count, cost, max_wait, commit)
  local allowed, watchers_allow = true, true
  local word = said + 1
  reply[word] = 'denied' -- a table without a hole stays a list
  for i = 1, count do
    local key, ok, first = KEYS[place + i], nil, nil
    if step[i] then
      local retry, reset, wait, units
      ok, first, retry, reset, wait, units, write[i] = step[i](key, cost, a[i], b[i], capacity[i], max_wait, commit and counts_denied[i])
      if ok == nil then return nil, place + i end
      reply[word + 1], reply[word + 2], reply[word + 3] = ok and 1 or 0, first, retry
      reply[word + 4], reply[word + 5], reply[word + 6] = reset, wait, units
      word = word + 6
    else
      ok, first, us[i], part[i] = gcra(key, cost, a[i], b[i], capacity[i], max_wait)
      if ok == nil then return nil, place + i end
      word = word + 1
      reply[word] = first
    end
    if watches[i] then watchers_allow = watchers_allow and ok else allowed = allowed and ok end
  end
  if allowed then reply[said + 1] = 'allowed' end
  said = word
  return allowed, watchers_allow
end

-- Writes down what the rules of a group want, those that may deny or those that watch.
local function write_all(count, cost, allowed, watchers_allow)
  for i = 1, count do
    local group_allows = allowed
    if watches[i] then group_allows = watchers_allow end
    if group_allows and not step[i] then
      if cost ~= 0 then write_gcra(KEYS[place + i], us[i], part[i], b[i]) end
    elseif group_allows and write[i] then
      write[i]()
    end
  end
end

local function corrupt(at)
  for word = said + 3, #reply do reply[word] = nil end
  reply[said + 1], reply[said + 2] = 'corrupt', at
  said = said + 2
end

local at = 2
while at <= #ARGV do
  local verb, checks, count = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local cost, max_wait = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  local commit, in_another_window = verb == 'commit', read_rules(at + 5, count)
  for _ = 1, checks do
    if in_another_window then
      said = said + 1
      reply[said] = 'rebucket'
    else
      local allowed, watchers_allow = ask(count, cost, max_wait, commit)
      if allowed == nil then
        corrupt(watchers_allow)
      else
        if commit then write_all(count, cost, allowed, watchers_allow) end
        if verb == 'reset' then for i = 1, count do call('DEL', KEYS[place + i]) end end
      end
    end
    place = place + count
  end
  at = at + 5 + count * 5
end
return reply
