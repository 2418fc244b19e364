-- find: reads calls of one function by their ids.
--
-- KEYS  1 calls  2 buckets
-- ARGV  1 now, ms  2 start of the names of buckets  3 `1` with what stands beside the records, then ids
-- gives per id: false, or {record} or {record, request or '', progress or ''}
local now, ended, parts = tonumber(ARGV[1]), ARGV[2], ARGV[3] == '1'
local found, missing = {}, {}
local records = call('HMGET', KEYS[1], unpack(ARGV, 4))
for i = 1, #ARGV - 3 do
  if not records[i] then missing[#missing + 1] = ARGV[i + 3] end
end
local kept, places = {}, {}
if #missing > 0 then kept, places = find_ended(call('ZRANGE', KEYS[2], 0, -1), ended, missing, now) end
for i = 1, #ARGV - 3 do
  local id = ARGV[i + 3]
  local record, where = records[i] or kept[id], places[id] or KEYS[1]
  if record and parts then
    found[i] = { record, call('HGET', where, REQUEST .. id) or '', call('HGET', where, '\1p' .. id) or '' }
  else
    found[i] = record and { record } or false
  end
end
return found
