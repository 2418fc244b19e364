-- locks/release.lua = LockStore::lock_release, behind scope.lua. Rust twin: towpath-core lock/release.rs
-- Ends the tenure of a fence. Safe to repeat; a later holder is never touched.
-- ARGV  4 fence
-- reply {'released', 1, record} | {'still_held', 0, holds} | {'already', 0} | {'expired', ended} | {'lost', ended, 'replaced' | 'absent', identity}
--       ended: 1 = by this the tenure is no more; identity: of who has the lock now
local fence = tonumber(ARGV[4])

local counter = redis.call('GET', C)
local counter_fence = read_counter(counter)
local r = read_record()
if r.err then return r end
if r.fence ~= fence then
  if fence <= r.last then return {'already', 0} end
  if not counter and not r.fence then return {'expired', 0} end
  return {'lost', 0, 'replaced', redis.call('GET', M)}
end
local live, own = r.lease_end > now, counter_fence == fence
local meta = not own and redis.call('GET', M)
local own_sidecar = meta == r.meta
local replaced = not own and counter
local absent = not own and not counter and live and not own_sidecar
if live and not replaced and not absent and r.holds > 1 then
  r.holds = r.holds - 1
  write_record(r)
  return {'still_held', 0, r.holds}
end
if own then redis.call('DEL', C, M)
elseif own_sidecar then
  redis.call('DEL', M)
  meta = false
end
note_release(r)
local record = write_record(r)
if replaced then return {'lost', 1, 'replaced', meta} end
wake(r)
if absent then return {'lost', 1, 'absent', false} end
return {live and 'released' or 'expired', 1, record}
