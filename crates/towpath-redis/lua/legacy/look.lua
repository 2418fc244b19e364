-- look: finds the functions that have something to do with legacy peers.
--
-- KEYS  per function: stream, exported, owed, legacy
-- gives the numbers of the functions that have entries, exported calls, unanswered callers or calls that legacy workers run
local found = {}
local function count(command, key)
  local size = redis.pcall(command, key)
  return type(size) == 'number' and size or 0
end
for i = 1, #KEYS, 4 do
  local some = count('XLEN', KEYS[i]) + count('ZCARD', KEYS[i + 1]) + count('SCARD', KEYS[i + 2]) + math.max(0, count('HLEN', KEYS[i + 3]) - 2)
  if some > 0 then found[#found + 1] = (i + 3) / 4 end
end
return found
