-- batches/due.lua = BatchStore::batch_due, behind place.lua.
-- ARGV  6 how many of each may be named
-- reply {{batch key, seconds, ..}, {batch id, ms, ..}}: what is due, up to one more than may be named, and behind it the first that is not due
local limit = tonumber(ARGV[6])
local function first_of(key, at)
  local found = redis.call('ZRANGEBYSCORE', key, '-inf', at, 'WITHSCORES', 'LIMIT', 0, limit + 1)
  if #found <= limit * 2 then
    for _, word in ipairs(redis.call('ZRANGEBYSCORE', key, '(' .. at, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)) do found[#found + 1] = word end
  end
  return found
end
return {first_of(DUE, sec(now)), first_of(FLY, int(now))}
