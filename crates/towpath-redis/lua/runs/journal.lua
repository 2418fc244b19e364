-- journal: a page of the journal of one run, behind place.lua.
-- ARGV  4 run id, 5 number of the first entry, 6 how many bytes
-- gives header, entry, entry, ...
local AT_ONCE = 32
local run, from, bytes = run_key(word()), tonumber(word()), tonumber(word())
local reply = { call('HGET', run, 'h') }
while bytes > 0 do
  local some = call('LRANGE', run .. ':j', from, from + AT_ONCE - 1)
  for _, entry in ipairs(some) do
    reply[#reply + 1] = entry
    bytes = bytes - #entry
  end
  if #some < AT_ONCE then break end
  from = from + AT_ONCE
end
return reply
