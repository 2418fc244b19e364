-- permits/renew.lua = LockStore::permit_renew, behind scope.lua. Rust twin: towpath-core permit/renew.rs
-- Prolongs one permit up to its cap, or says that it is lost.
-- ARGV  4 lock_id  5 fence  6 lease_ms, '' = as long as it was given last
-- reply {'renewed', lease end} | {'lost', 'expired' | 'max_hold' | 'replaced' | 'absent'}
local lock_id = ARGV[4]

local row = redis.call('HGET', Q, lock_id)
if not row then return {'lost', 'absent'} end
local weight, fence, cap, execution, lease = read_permit(row)
if fence ~= tonumber(ARGV[5]) then return {'lost', 'replaced'} end
if cap <= now then return {'lost', 'max_hold'} end
local lease_end = redis.call('ZSCORE', P, lock_id)
if not lease_end or tonumber(lease_end) <= now then return {'lost', 'expired'} end
local length = tonumber(ARGV[6]) or lease
local ends = math.min(now + length, cap)
if length ~= lease then write_permit(lock_id, weight, fence, cap, length, execution) end
redis.call('ZADD', P, int(ends), lock_id)
note_used(ends)
return {'renewed', ends}
