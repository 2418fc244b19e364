-- posts: posts of a place that may be sent now, in order, behind place.lua. Those to a run that has refused one wait until it is asked again.
-- ARGV  4 now, 5 how many
-- gives per post four words: number, not before, text, how often its run has refused
local AT_ONCE = 64
local now, want = tonumber(word()), tonumber(word())
local due, kept = {}, 0
while kept < want do
  local some = call('ZRANGEBYSCORE', T .. 'posts', '-inf', string.format('%.0f', now), 'WITHSCORES', 'LIMIT', kept, AT_ONCE)
  if #some == 0 then break end
  for i = 1, #some, 2 do
    local number, text = some[i], call('HGET', T .. 'out', some[i])
    if not text then
      call('ZREM', T .. 'posts', number)
    elseif kept < want then
      local target = match(text, '^%S+ (%S+)')
      local held = target and call('HGET', T .. 'held', target) or '0 0'
      local again, tries = match(held, '^(%d+) (%d+)')
      if tonumber(again or 0) > now then
        call('ZADD', T .. 'posts', again, number)
      else
        kept = kept + 1
        for _, part in ipairs({ number, some[i + 1], text, tries or '0' }) do due[#due + 1] = part end
      end
    end
  end
end
return due
