-- find: reads calls of one function by their ids.
--
-- KEYS  1 calls  2 buckets
-- ARGV  1 now, ms  2 start of the names of buckets  3 `1` with what stands beside the records, then ids
-- gives per id: false, or {record} or {record, request or '', progress or ''}
local now, ended, parts = tonumber(ARGV[1]), ARGV[2], ARGV[3] == '1'
local buckets, found = nil, {}
local records = call('HMGET', KEYS[1], unpack(ARGV, 4))
for i = 1, #ARGV - 3 do
  local id, record, where = ARGV[i + 3], records[i], KEYS[1]
  if not record then
    buckets = buckets or call('ZRANGE', KEYS[2], 0, -1)
    record, where = find_ended(buckets, ended, id, now)
  end
  if record and parts then
    found[i] = { record, call('HGET', where, REQUEST .. id) or '', call('HGET', where, '\1p' .. id) or '' }
  else
    found[i] = record and { record } or false
  end
end
return found
