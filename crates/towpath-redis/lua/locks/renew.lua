-- locks/renew.lua = LockStore::lock_renew, behind scope.lua. Rust twin: towpath-core lock/renew.rs
-- Prolongs the lease of one tenure and puts counter and sidecar back as they were, or says that it is lost.
-- ARGV  4 fence  5 lease_ms, '' = as long as it was given last
-- reply {'renewed', lease end (never beyond the cap), attempts of old callers since the last renewal, 1 = something was healed, record}
--       {'lost', 'expired' | 'max_hold' | 'replaced' | 'absent', 1 = the tenure is no more}
local fence, lease = tonumber(ARGV[4]), tonumber(ARGV[5])

local counter = redis.call('GET', C)
local counter_fence, attempts = read_counter(counter)
local r = read_record()
if r.err then return r end
if r.fence ~= fence then
  return {'lost', (not counter and 'absent') or (counter_fence == fence and 'expired') or 'replaced', 0}
end
if r.cap <= now then return {'lost', 'max_hold', 0} end
if r.lease_end <= now then return {'lost', 'expired', 0} end
local meta = redis.call('GET', M)
local own_sidecar = meta == r.meta
if not is_held(r, counter, counter_fence, meta) then -- leave nothing that looks like a holder
  if own_sidecar then redis.call('DEL', M) end
  unlist(r)
  r.fence = nil
  write_record(r)
  return {'lost', counter and 'replaced' or 'absent', 1}
end
r.lease = lease or r.lease
r.lease_end = math.min(now + r.lease, r.cap)
local record = write_record(r)
publish(r)
return {'renewed', r.lease_end, counter and math.max(attempts - 1, 0) or 0, (counter and own_sidecar) and 0 or 1, record}
