-- batches/seal.lua = BatchStore::batch_seal, behind place.lua. Rust twin: towpath-core batch/seal.rs
-- Closes an open batch now, pushes its deadline out without a message, or gives back a deadline that went missing.
-- ARGV  6 bk  7 flush | touch | rearm  8 serial 1|0  9 debounce_ms (touch)  10 max_wait_ms (touch)
-- reply {'flushed', messages} | {'touched', deadline} | {'sealed', deadline} | {'rearmed', deadline} | {'in_flight'} | {'empty'}
local bk, verb = ARGV[6], ARGV[7]
local open, counted = read_open(bk)
if not open then
  if verb == 'rearm' then forget_open(bk, counted) end
  return {'empty'}
end
local busy = ARGV[8] == '1' and flying(bk)
if verb == 'rearm' then
  if busy then return {'in_flight'} end
  redis.call('ZADD', DUE, sec(open.deadline), bk)
  wake(open.deadline)
  return {'rearmed', open.deadline}
end
if open.sealed then return {'sealed', open.deadline} end
if verb == 'touch' then
  local silence, cap = now + tonumber(ARGV[9]), open.first + tonumber(ARGV[10])
  local deadline = math.min(silence, cap)
  if deadline <= open.deadline then return {'touched', open.deadline} end
  open.deadline, open.reason = deadline, silence <= cap and 'silence_reached' or 'max_wait_reached'
else
  open.deadline, open.reason, open.sealed = now, 'flush', true
end
keep_open(bk, open)
if busy then
  redis.call('ZREM', DUE, bk)
else
  redis.call('ZADD', DUE, sec(open.deadline), bk)
  if verb == 'flush' then wake(now) end
end
if verb == 'touch' then return {'touched', open.deadline} end
return {'flushed', open.n}
