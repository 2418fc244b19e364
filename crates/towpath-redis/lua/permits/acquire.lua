-- permits/acquire.lua = LockStore::permit_acquire, behind scope.lua. Rust twin: towpath-core permit/acquire.rs
-- Takes the units if everybody who waits ahead fits as well, else joins the queue.
-- ARGV  4 lock_id  5 execution_id ('' = none)  6 waiter ('' = does not wait)  7 limit  8 weight  9 lease_ms  10 max_hold_ms
--       11 waiter_ttl_ms  12 waiters_max  13 claim_ms
-- reply {'granted' | 'replayed', fence, lease end, cap, units left} | {'never'} | {'full', waiters}
--       {'busy', free in ms (-1 = nobody knows), rank (-1 = not queued), units left}
local lock_id, execution, waiter = ARGV[4], ARGV[5], ARGV[6]
local limit, weight, lease, max_hold = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local claim = tonumber(ARGV[13])

if weight > limit then return {'never'} end
for _, lapsed in ipairs(redis.call('ZRANGEBYSCORE', P, '-inf', now)) do
  drop(lapsed, redis.call('HGET', Q, lapsed) or '0 0 0 0 ')
end
local x = redis.call('HMGET', X, 'u', 'n', 'h', 's')
local used, arrivals, high, silent_since = tonumber(x[1] or 0), tonumber(x[2] or 0), tonumber(x[3] or 0), x[4] and tonumber(x[4]) or nil
if used > 0 and redis.call('ZCARD', P) == 0 then used = 0 end -- all of them lapsed unseen, and were swept
local lease_end = redis.call('ZSCORE', P, lock_id)
if lease_end then
  local row = redis.call('HGET', Q, lock_id) or ''
  local _, fence, cap = read_permit(row)
  if fence then return {'replayed', fence, tonumber(lease_end), cap, math.max(limit - used, 0)} end
  drop(lock_id, row)
end

-- Walks the queue from its head: does everybody ahead fit, and then we? Does the head? Whoever is gone is dropped on the way.
local function may_enter()
  local sum, place, head_fits = used, 0, nil
  while arrivals > 0 do
    local page = redis.call('ZRANGE', W, place, place + 63)
    if #page == 0 then break end
    for _, ahead in ipairs(page) do
      if ahead == waiter then return sum + weight <= limit, head_fits end
      local alive = redis.call('ZSCORE', D, ahead)
      if not alive or tonumber(alive) <= now then
        if place == 0 then silent_since = nil end -- the next head has not had its chance yet
        leave_queue(ahead)
      else
        sum = sum + tonumber(redis.call('HGET', V, ahead) or 1)
        if head_fits == nil then head_fits = sum <= limit end
        place = place + 1
        if sum + weight > limit then return false, head_fits end
      end
    end
  end
  return sum + weight <= limit, head_fits
end

local fits, head_fits = may_enter()
local turn_in
if not fits and head_fits and used + weight <= limit then -- the head could have entered and is silent: one place is passed per claim
  silent_since = silent_since or now
  turn_in = silent_since + claim - now
  if turn_in <= 0 then
    leave_queue(redis.call('ZRANGE', W, 0, 0)[1])
    silent_since, turn_in = nil, claim
    fits = may_enter()
  end
end

if fits then
  local fence = math.max(high + 1, math.floor((now - EPOCH) / 100))
  local cap = now + max_hold
  local ends, left = math.min(now + lease, cap), limit - used - weight
  redis.call('ZADD', P, int(ends), lock_id)
  write_permit(lock_id, weight, fence, cap, lease, execution)
  redis.call('HSET', X, 'u', int(used + weight), 'h', int(fence))
  if x[4] then redis.call('HDEL', X, 's') end
  local life = math.max(max_hold, fence * 100 + EPOCH - now) + HOUR
  keep(P, life)
  keep(Q, life)
  keep(X, life)
  if waiter ~= '' and arrivals > 0 then leave_queue(waiter) end
  if sets ~= '' and execution ~= '' then
    redis.pcall('SADD', sets .. execution, member)
    keep(sets .. execution, max_hold + HOUR)
  end
  if left > 0 and arrivals > 0 then wake(1) end
  note_used(ends)
  return {'granted', fence, ends, cap, left}
end

if silent_since then redis.call('HSET', X, 's', int(silent_since)) elseif x[4] then redis.call('HDEL', X, 's') end
local rank = -1
if waiter ~= '' then
  if not redis.call('ZSCORE', W, waiter) then
    local waiters = redis.call('ZCARD', W)
    if waiters >= tonumber(ARGV[12]) then return {'full', waiters} end
    redis.call('ZADD', W, redis.call('HINCRBY', X, 'n', 1), waiter)
  end
  redis.call('ZADD', D, int(now + tonumber(ARGV[11])), waiter)
  redis.call('HSET', V, waiter, int(weight))
  rank = redis.call('ZRANK', W, waiter)
  for _, key in ipairs({W, D, V, X}) do keep(key, key == X and 2 * HOUR or HOUR) end
  note_used(now + tonumber(ARGV[11]))
end
local next_lapse = redis.call('ZRANGE', P, 0, 0, 'WITHSCORES')[2]
return {'busy', turn_in or (next_lapse and tonumber(next_lapse) - now) or -1, rank, math.max(limit - used, 0)}
