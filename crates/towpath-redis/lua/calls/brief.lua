-- brief: reads records for a list, but not those that are long.
--
-- KEYS  1 calls, or a bucket of ended calls
-- ARGV  1 how many bytes are long, then ids
-- gives per id: false, the record, or 1 if it is long
local found, long = {}, tonumber(ARGV[1])
for i = 2, #ARGV do
  local bytes = call('HSTRLEN', KEYS[1], ARGV[i])
  found[i - 1] = bytes > long and 1 or bytes > 0 and call('HGET', KEYS[1], ARGV[i])
end
return found
