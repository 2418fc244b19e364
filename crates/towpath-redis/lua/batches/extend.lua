-- batches/extend.lua = BatchStore::batch_extend, behind place.lua. Rust twin: towpath-core batch/claim.rs
-- A dispatcher whose delivery outlasts its lease says that it lives.
-- ARGV  6 batch id  7 lease_ms  8 token
-- reply {'extended', lease end} | {'lost'}
if redis.call('HGET', own .. 'ch:' .. ARGV[6], 'tok') ~= ARGV[8] then return {'lost'} end
local lease_end = now + tonumber(ARGV[7])
redis.call('ZADD', FLY, int(lease_end), ARGV[6])
return {'extended', lease_end}
