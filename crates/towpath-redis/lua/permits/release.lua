-- permits/release.lua = LockStore::permit_release, behind scope.lua. Rust twin: towpath-core permit/release.rs
-- Gives permits back, one by its lock id or all of an execution, or takes a waiter out of the queue. Safe to repeat.
-- ARGV  4 by: permit | execution_id | waiter  5 value  6 fence (by permit only; '' = any)
-- reply how many that were
local by, value, fence = ARGV[4], ARGV[5], tonumber(ARGV[6])

local gone = 0
if by == 'permit' then
  local row = redis.call('HGET', Q, value)
  local _, granted = read_permit(row or '')
  if row and (not fence or granted == fence) then
    drop(value, row)
    gone = 1
  end
elseif by == 'execution_id' then
  local rows = redis.call('HGETALL', Q)
  for at = 1, #rows, 2 do
    local _, _, _, execution = read_permit(rows[at + 1])
    if execution == value then
      drop(rows[at], rows[at + 1])
      gone = gone + 1
    end
  end
  if sets ~= '' then redis.pcall('SREM', sets .. value, member) end
else
  -- The next head has not had its chance yet.
  if redis.call('ZRANK', W, value) == 0 then redis.call('HDEL', X, 's') end
  gone = redis.call('ZREM', W, value)
  leave_queue(value)
end
if gone > 0 then wake(2) end
return gone
