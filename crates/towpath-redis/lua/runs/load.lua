-- load: reads what decisions about runs need, behind place.lua and section.lua.
-- ARGV  4 how many runs; per run: id, how many events, per event its name and reference; how many steps, per step its id; how many
--       facts, per fact its number
-- gives per run: {version, header, instant of the latest entry, reference, input hash, how many of the facts are events, per step its open
--       child, per event what is known of it}
local function load(id, events, steps, facts)
  local run = run_key(id)
  local kept = call('HMGET', run, 'v', 'h', 'a', 'r', 'i')
  local count = 0
  for _, number in ipairs(facts) do
    local found = call('ZRANGEBYSCORE', run .. ':in', number, number)
    if found[1] and match(found[1], '^%d+ %-?%d+ e') then count = count + 1 end
  end
  local reply = { kept[1], kept[2], kept[3], kept[4], kept[5], count }
  for _, step in ipairs(steps) do reply[#reply + 1] = call('HGET', run .. ':kids', step) end
  for _, field in ipairs(events) do reply[#reply + 1] = call('HGET', run .. ':er', field) end
  return reply
end

local replies = {}
for number = 1, tonumber(word()) do
  local id = word()
  local events = words(tonumber(word()))
  local steps = words(tonumber(word()))
  local facts = words(tonumber(word()))
  replies[number] = run_section(load, id, events, steps, facts)
end
return refused or replies
