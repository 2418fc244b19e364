-- locks/reap.lua = LockStore::lock_reap, behind scope.lua. Rust twin: towpath-core lock/reap.rs
-- After a lease has ended: frees a counter that an old workflow's EXPIRE kept alive, and wakes the queue.
-- reply {'freed'} | {'free'} | {'live', lease end} | {'legacy'}
local counter, meta = redis.call('GET', C), redis.call('GET', M)
local counter_fence = read_counter(counter)
local r = read_record()
if r.err then return r end
if is_held(r, counter, counter_fence, meta) then
  if L then redis.pcall('ZADD', L, int(r.lease_end), scope) end
  return {'live', r.lease_end}
end
if L then redis.pcall('ZREM', L, scope) end
if counter and not counter_fence then return {'legacy'} end
if counter then
  redis.call('DEL', C)
  if not r.free_since then
    r.free_since = now
    write_record(r)
  end
end
if meta and not foreign(r, meta) then redis.call('DEL', M) end
wake(r)
return {counter and 'freed' or 'free'}
