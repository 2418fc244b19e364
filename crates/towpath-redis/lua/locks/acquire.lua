-- locks/acquire.lua = LockStore::lock_acquire, behind scope.lua. Rust twin: towpath-core lock/acquire.rs
-- Takes the lock, joins its queue, or says who is in the way.
-- ARGV  4 lock_id  5 execution_id ('' = none)  6 request_id  7 waiter ('' = does not wait)
--       8 identity, JSON up to and with '"fence":'  9 lease_ms  10 max_hold_ms  11 max_holds
--       12 waiter_ttl_ms, waiters_max, claim_ms and orphan_grace_ms (0 = for ever), with spaces between them
-- reply {'granted', fence, previous: none | released | expired | orphan, record}
--       {'replayed' | 'reentered', fence, lease end, cap, holds, granted at}
--       {'self', fence, lease end} | {'spent'} | {'full', waiters}
--       {'busy', 'towpath' | 'legacy' | 'queue', free in ms (-1 = nobody knows), rank (-1 = not queued), counter, identity, lease end}
local lock_id, execution, request, waiter, identity = ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local lease, max_hold, max_holds = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])

local counter = redis.call('GET', C)
local counter_fence, attempts = read_counter(counter)
local r = read_record()
if r.err then return r end
local leased = r.fence and r.lease_end > now
local meta = ((leased and not counter) or (counter and not counter_fence)) and redis.call('GET', M)
local held = is_held(r, counter, counter_fence, meta)

-- The holder itself, or a late copy of a question that is over.
if held and r.id == lock_id then
  if r.request == request then
    return {'replayed', r.fence, r.lease_end, r.cap, r.holds, tonumber(r.at)}
  end
  if r.holds >= max_holds then return {'self', r.fence, r.lease_end} end
  r.holds, r.request, r.lease_end = r.holds + 1, request, math.max(r.lease_end, math.min(now + lease, r.cap))
  r.lease = math.max(r.lease, lease)
  write_record(r)
  publish(r)
  return {'reentered', r.fence, r.lease_end, r.cap, r.holds, tonumber(r.at)}
end
if r.last_request == request then return {'spent'} end

-- Is it free?
local free, orphan, changed = not held and (not counter or counter_fence), false, false
local waiter_ttl, waiters_max, claim, grace
if not free or r.arrivals > 0 then
  waiter_ttl, waiters_max, claim, grace = string.match(ARGV[12], '^(%d+) (%d+) (%d+) (%d+)$')
  grace = tonumber(grace)
end
if not held and not free then
  if foreign(r, meta) then
    changed, r.watched = r.watched ~= nil, nil
  elseif grace > 0 then -- an old counter without identity, watched without a gap
    local value = tonumber(string.match(counter, '^[+-]?%d+$') or 0)
    local goes_on = r.watched and now - r.seen <= 5000 and value >= r.value
    if not goes_on then r.watched = now end
    r.seen, r.value, changed = now, value, true
    orphan = goes_on and now - r.watched >= grace
    free = orphan
  end
end
if not free and r.free_since then r.free_since, changed = nil, true end

-- Whose turn is it?
local turn_in
if free then
  local head
  while r.arrivals > 0 do
    head = redis.call('ZRANGE', W, 0, 0)[1]
    if not head then break end
    local alive = redis.call('ZSCORE', D, head)
    if alive and tonumber(alive) > now then break end
    redis.call('ZREM', W, head)
    redis.call('ZREM', D, head)
  end
  if head and head ~= waiter then -- a silent head is passed after a claim for every place ahead
    if not r.free_since then r.free_since, changed = now, true end
    local ahead = (waiter ~= '' and redis.call('ZRANK', W, waiter)) or redis.call('ZCARD', W)
    turn_in = r.free_since + claim * ahead - now
    if turn_in <= 0 then
      turn_in = nil
      for _, passed in ipairs(redis.call('ZRANGE', W, 0, ahead - 1)) do
        redis.call('ZREM', W, passed)
        redis.call('ZREM', D, passed)
      end
    end
  end
end
if free and not turn_in then
  local previous = (orphan and 'orphan') or (r.high > r.last and 'expired') or (r.high > 0 and 'released') or 'none'
  local fence = math.max(r.high + 1, math.floor((now - EPOCH) / 100))
  r.high, r.fence, r.holds, r.at, r.request, r.id, r.execution = fence, fence, 1, int(now), request, lock_id, execution
  r.cap = now + max_hold
  r.lease, r.lease_end = lease, math.min(now + lease, r.cap)
  r.meta = identity .. int(fence) .. ',"towpath":1}'
  r.free_since, r.watched = nil, nil
  local record = write_record(r)
  publish(r)
  if waiter ~= '' and r.arrivals > 0 then
    redis.call('ZREM', W, waiter)
    redis.call('ZREM', D, waiter)
  end
  if sets ~= '' and execution ~= '' then
    local set, life = sets .. execution, tonumber(lifetime(max_hold + HOUR))
    redis.pcall('SADD', set, 'lock:' .. scope)
    if redis.call('PTTL', set) < life then redis.call('PEXPIRE', set, int(life)) end
  end
  return {'granted', fence, previous, record}
end

-- Busy: it queues, if it wants to.
local rank = -1
if waiter ~= '' then
  local place = redis.call('ZSCORE', W, waiter)
  if not place then
    local waiters = redis.call('ZCARD', W)
    if waiters >= tonumber(waiters_max) then
      if changed then write_record(r) end
      return {'full', waiters}
    end
    r.arrivals = r.arrivals + 1
    redis.call('ZADD', W, int(r.arrivals), waiter)
  end
  redis.call('ZADD', D, int(now + tonumber(waiter_ttl)), waiter)
  rank = redis.call('ZRANK', W, waiter)
  redis.call('PEXPIRE', W, lifetime(HOUR))
  redis.call('PEXPIRE', D, lifetime(HOUR))
  note_used(now + tonumber(waiter_ttl))
  changed = true -- it must outlive the queue
end
if changed then write_record(r) end
if turn_in then return {'busy', 'queue', turn_in, rank, counter, false, false} end
if held then
  if attempts > 500000 then redis.call('SET', C, int(r.fence) .. '000001', 'KEEPTTL') end
  return {'busy', 'towpath', r.lease_end - now, rank, counter, r.meta, r.lease_end}
end
local left = redis.call('PTTL', C)
note_used(now + (left > 0 and left or HOUR))
return {'busy', 'legacy', left, rank, counter, foreign(r, meta), false}
