-- facts: pages of inboxes, behind place.lua and section.lua.
-- ARGV  4 how many runs; per run: id, the number after which the page begins, how many facts, how many bytes
-- gives per run: {header, fact, fact, ...}
local AT_ONCE = 8

local function page(id, after, left, bytes)
  local run = run_key(id)
  local reply, from = { call('HGET', run, 'h') }, '(' .. after
  while left > 0 and bytes > 0 do
    local some = call('ZRANGEBYSCORE', run .. ':in', from, '+inf', 'LIMIT', 0, math.min(left, AT_ONCE))
    if #some == 0 then break end
    for _, fact in ipairs(some) do
      reply[#reply + 1] = fact
      bytes, left = bytes - #fact, left - 1
    end
    from = '(' .. match(some[#some], '^%d+')
  end
  return reply
end

local replies = {}
for number = 1, tonumber(word()) do
  local id, after = word(), word()
  replies[number] = run_section(page, id, after, tonumber(word()), tonumber(word()))
end
return refused or replies
