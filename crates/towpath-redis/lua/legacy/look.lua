-- look: finds the functions that have something to do with legacy peers.
--
-- KEYS  per function: stream, exported, owed, legacy
-- ARGV  per function: the group that its stream must have, or `` if this process does not serve it
-- gives the numbers of the functions that have entries, exported calls, unanswered callers or calls that legacy workers run, or whose group
--       was destroyed
local found = {}
local function count(command, key)
  local size = redis.pcall(command, key)
  return type(size) == 'number' and size or 0
end
-- A key of another kind has no group, and none can be made in it.
local function has_lost(group, stream)
  if group == '' then return false end
  local groups = redis.pcall('XINFO', 'GROUPS', stream)
  if groups.err then return false end
  for _, about in ipairs(groups) do
    if about[2] == group then return false end
  end
  return true
end
-- The notes in a hash, without the three fields that are about the whole stream.
local function notes(legacy)
  local size = count('HLEN', legacy)
  if size == 0 or size > 3 then return size end
  for _, field in ipairs({ 'watermark', 'pending', 'missed' }) do
    if size > 0 then size = size - redis.call('HEXISTS', legacy, field) end
  end
  return size
end
for i = 1, #KEYS, 4 do
  local number = (i + 3) / 4
  local some = count('XLEN', KEYS[i]) + count('ZCARD', KEYS[i + 1]) + count('SCARD', KEYS[i + 2]) + notes(KEYS[i + 3])
  if some > 0 or has_lost(ARGV[number], KEYS[i]) then found[#found + 1] = number end
end
return found
