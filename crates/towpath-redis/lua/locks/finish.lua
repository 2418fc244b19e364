-- locks/finish.lua = LockStore::lock_end, behind scope.lua. Rust twin: towpath-core lock/end.rs
-- Ends a tenure, ours or an old workflow's, when its recorded owner matches. Compare and delete in one step.
-- An identity that is not ours is judged by the caller, which reads JSON as the law does: it comes again with the identity that it approved of.
-- ARGV  6 by: lock_id | execution_id | counter  7 value (counter: '=' and the text as it was seen, '' = there was none)
--       8 identity that the caller approved of ('' = none yet)
-- reply {'ended', identity, lease end (of a tenure of ours)} | {'still_held', holds} | {'already'}
--       {'absent', 1 = a counter stands there without identity} | {'not_holder', identity, lease end} | {'changed', counter}
--       {'judge', identity, lock id of the latest release}    nothing was touched
local by, value, approved = ARGV[6], ARGV[7], ARGV[8]

local counter, meta = redis.call('GET', C), redis.call('GET', M)
local counter_fence = read_counter(counter)
local r = read_record()
if r.err then return r end
local held = is_held(r, counter, counter_fence, meta)
local owner, lease_end = meta, false
if held then owner, lease_end = r.meta, r.lease_end end
if by == 'counter' then
  if (counter and '=' .. counter or '') ~= value then return {'changed', counter} end
elseif held then
  if (by == 'lock_id' and r.id or r.execution) ~= value then
    if by == 'lock_id' and r.last_id == value then return {'already'} end
    return {'not_holder', owner, lease_end}
  end
  if by == 'lock_id' and r.holds > 1 then
    r.holds = r.holds - 1
    write_record(r)
    return {'still_held', r.holds}
  end
else
  if not foreign(r, meta) then return {'absent', (counter and not counter_fence) and 1 or 0} end
  if meta ~= approved then return {'judge', meta, r.last_id or false} end
end
redis.call('DEL', C, M)
if r.fence then note_release(r)
else
  unlist(r)
  r.last_id, r.free_since = by == 'lock_id' and value or nil, now
end
write_record(r)
wake(r)
return {'ended', owner, lease_end}
