-- limits/take.lua, the last part: goes through the checks. The contract is in limits/clock.lua, which begins the script.
local algorithms = {g = gcra, w = fixed_window, c = sliding_counter, l = sliding_log}
local reply = {now}
local at, place = 3, 0

local function say(word) reply[#reply + 1] = word end

-- The rules of a check as they stand in ARGV, and how many words they take.
local function read_rules(count, cost, max_wait)
  local rules = {}
  for i = 1, count do
    local o = at + 4 + (i - 1) * 5
    local flags = ARGV[o + 4]
    rules[i] = {
      step = algorithms[ARGV[o]], window = ARGV[o] == 'w', a = tonumber(ARGV[o + 1]), b = tonumber(ARGV[o + 2]),
      capacity = tonumber(ARGV[o + 3]), cost = cost, max_wait = max_wait,
      counts_denied = string.find(flags, 'd', 1, true), shadow = string.find(flags, 's', 1, true),
    }
  end
  return rules
end

local function in_another_window(rules)
  for _, rule in ipairs(rules) do
    if rule.window and rule.b ~= math.floor(now / rule.a) then return true end
  end
  return false
end

-- Asks every rule before anything is written.
local function ask(rules, commit)
  local rows, writes, all_allow = {}, {}, {[true] = true, [false] = true}
  for i, rule in ipairs(rules) do
    local ok, remaining, retry, reset, wait, count, write = rule.step(KEYS[place + i], rule, now, commit)
    if ok == nil then return nil, place + i end
    local watches = rule.shadow ~= nil
    all_allow[watches] = all_allow[watches] and ok
    rows[i] = {ok and 1 or 0, remaining, retry, reset, wait, count}
    if ok and write then writes[#writes + 1] = {watches, write} end
  end
  return rows, writes, all_allow
end

for _ = 1, tonumber(ARGV[2]) do
  local verb, count = ARGV[at], tonumber(ARGV[at + 1])
  local rules = read_rules(count, tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]))
  if in_another_window(rules) then
    say('rebucket')
  else
    local rows, writes, all_allow = ask(rules, verb == 'commit')
    if not rows then
      say('corrupt')
      say(writes)
    else
      say(all_allow[false] and 'allowed' or 'denied')
      for _, row in ipairs(rows) do
        for _, number in ipairs(row) do say(number) end
      end
      if verb == 'commit' then
        for _, write in ipairs(writes) do
          if all_allow[write[1]] then write[2]() end
        end
      elseif verb == 'reset' then
        for i = 1, count do redis.call('DEL', KEYS[place + i]) end
      end
    end
  end
  at, place = at + 4 + count * 5, place + count
end
return reply
