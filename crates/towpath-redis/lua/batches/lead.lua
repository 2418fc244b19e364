-- batches/lead.lua = BatchSource::lead and resign. One drains an old producer's list while the others stand by.
-- It saves work and guards nothing: drain.lua and drained.lua do not ask who leads.
-- KEYS  1 string  towpath:{queue:incoming}:drainer    end of the lease in ms, a space, who drains the list
-- ARGV  1 now_ms  2 who asks  3 lease_ms, 0 = gives the place up  4 kept for so long, ms, '' = for as long as it counts
-- reply {'yours'} | {'free'}: it was given up, or nobody had it | {'taken', end of the other's lease}
local now, who, lease = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local lease_end, leader = string.match(redis.call('GET', KEYS[1]) or '', '^(%d+) (.+)$')
if leader and leader ~= who and tonumber(lease_end) > now then return {'taken', tonumber(lease_end)} end
if lease == 0 then
  redis.call('DEL', KEYS[1])
  return {'free'}
end
-- The number judges. The TTL only sweeps, a little late.
redis.call('SET', KEYS[1], string.format('%d %s', now + lease, who), 'PX', ARGV[4] ~= '' and ARGV[4] or string.format('%d', lease + 1000))
return {'yours'}
