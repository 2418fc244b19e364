-- batches/reclaim.lua = BatchStore::batch_reclaim, behind place.lua. Rust twin: towpath-core batch/claim.rs
-- Takes over a batch whose lease ended or whose retry is due: same id, same messages, next attempt.
-- ARGV  6 batch id  7 lease_ms  8 token
-- reply {'claimed', lease end, attempt, bk, first, last, reason, {message, ..}, the dead letter that it is, if it was replayed}
--       {'skip', 'gone' | 'not_due'}
local batch_id, lease, token = ARGV[6], tonumber(ARGV[7]), ARGV[8]
local C, CH = own .. 'c:' .. batch_id, own .. 'ch:' .. batch_id
local at = redis.call('ZSCORE', FLY, batch_id)
if not at then return {'skip', 'gone'} end
if tonumber(at) > now then return {'skip', 'not_due'} end
local h = redis.call('HMGET', CH, 'bk', 'f', 'l', 'r', 'p')
if not h[1] then -- a flight without a batch
  redis.call('ZREM', FLY, batch_id)
  return {'skip', 'gone'}
end
local messages = redis.call('LRANGE', C, 0, -1)
local attempt = redis.call('HINCRBY', CH, 'att', 1)
redis.call('HSET', CH, 'tok', token)
redis.call('ZADD', FLY, int(now + lease), batch_id)
return {'claimed', now + lease, attempt, h[1], h[2], h[3], h[4], messages, h[5]}
