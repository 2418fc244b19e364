-- ended: ended calls that are still kept, by id: the record, and by id the bucket that has it. One command for each bucket, whatever the number of
-- ids.
-- Of any call: retain, ended_at.
local KEPT = '^[^\n]*\n%d+\t(%d+)\t%d+\t%d+\t%d+\t%d*\t(%d*)\t'
local function find_ended(buckets, ended, ids, now)
  local records, places = {}, {}
  for _, bucket in ipairs(buckets) do
    local left = {}
    for i, record in ipairs(#ids > 0 and call('HMGET', ended .. bucket, unpack(ids)) or {}) do
      local retain, ended_at
      if record then retain, ended_at = match(record, KEPT) end
      if retain and (ended_at == '' or now < tonumber(ended_at) + tonumber(retain)) then
        records[ids[i]], places[ids[i]] = record, ended .. bucket
      else
        left[#left + 1] = ids[i]
      end
    end
    ids = left
  end
  return records, places
end
