-- locks/cancel.lua = LockStore::lock_cancel, behind scope.lua. Rust twin: towpath-core lock/cancel.rs
-- A waiter gives up. A grant whose answer never arrived is undone.
-- ARGV  6 waiter ('' = it had no place)  7 request_id
-- reply {'cancelled'} | {'not_queued'} | {'was_granted', fence}
local waiter, request = ARGV[6], ARGV[7]

local was_head = waiter ~= '' and redis.call('ZRANGE', W, 0, 0)[1] == waiter
local queued = redis.call('ZREM', W, waiter) == 1
redis.call('ZREM', D, waiter)
local r = read_record()
if r.err then return r end
local fence = r.fence
local granted = fence and r.request == request and r.lease_end > now and r.holds == 1
if granted then
  if read_counter(redis.call('GET', C)) == fence then redis.call('DEL', C, M)
  elseif redis.call('GET', M) == r.meta then redis.call('DEL', M) end
  note_release(r)
  write_record(r)
end
if granted or was_head then wake(r) end
if granted then return {'was_granted', fence} end
return {queued and 'cancelled' or 'not_queued'}
