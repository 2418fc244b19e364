-- claim: delivers waiting calls of some functions to a worker, oldest first.
--
-- KEYS  per section: calls, queue, running, parked, function, the calls that this worker holds by the store's count
-- ARGV  1 how many sections  2 worker  3 now, ms  4 lease, ms  5 how many calls at most in all
--       then per section: how many calls at most
-- gives per section: {`T` or `X`, why}, or {how many are left in the queue, limits, ids of calls past their deadline, then per call:
--       id, record, request if that stands beside it}. Limits is a sum: 1 the store counts this worker's calls, 2 the function has a
--       concurrency, 4 the function had no room for more, 8 this worker had none
-- A line of the queue whose call does not wait is removed. A call past its deadline leaves the queue; its timer ends it.
-- One run looks at a bounded number of lines and bytes, whatever waits: what is left is for the next one.
local KEYS_EACH, LATE_MAX, CALLS_MAX = 6, 256, 128
local to_look, bytes = 512, 1024 * 1024
local worker, now, lease, left = ARGV[2], tonumber(ARGV[3]), ARGV[4], math.min(tonumber(ARGV[5]), CALLS_MAX)
local until_ = string.format('%.0f', now + tonumber(lease))
local HELD = '\t' .. ARGV[3] .. '\t' .. lease .. '\t' .. until_ .. '\t'

local function claim(k, max)
  local calls, queue, running, parked, about, held = KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4], KEYS[k + 5], KEYS[k + 6]
  local limits = call('HMGET', about, 'max_concurrent', 'offer:' .. worker)
  local room = math.min(max, left)
  local of_worker = limits[2] and tonumber(limits[2]) - call('SCARD', held)
  local of_function = limits[1] and tonumber(limits[1]) - call('ZCARD', running) + call('SCARD', parked)
  room = math.min(room, of_worker or room, of_function or room)
  local counted = limits[2] and '1' or '0'
  local held_by = HELD .. counted .. '\t' .. worker
  local reply, late, looked = { 0, 0, {} }, {}, {}
  local written, leases, mine, taken, is_empty = {}, {}, {}, 0, false
  while room > 0 and to_look > 0 and bytes > 0 and not is_empty do
    local asked = math.min(room, to_look)
    local ids = call('ZRANGE', queue, #looked, #looked + asked - 1)
    is_empty, to_look = #ids < asked, to_look - #ids
    local records = #ids > 0 and call('HMGET', calls, unpack(ids))
    for i, id in ipairs(ids) do
      looked[#looked + 1] = id
      local old = records[i]
      local version, kept, deadline, beside, delivery
      if old then version, kept, deadline, beside, delivery = match(old, WAITING) end
      if version and now >= tonumber(deadline) then
        if #late < LATE_MAX then late[#late + 1] = id end
      elseif version then
        room, left = room - 1, left - 1
        local record = as_running(old, version, kept, delivery, held_by)
        local request = beside == '1' and call('HGET', calls, REQUEST .. id) or ''
        local n = 2 * taken
        taken = taken + 1
        written[n + 1], written[n + 2] = id, record
        leases[n + 1], leases[n + 2] = until_, id
        mine[taken] = id
        n = 3 * taken
        reply[n + 1], reply[n + 2], reply[n + 3] = id, record, request
        bytes = bytes - #record - #request
        if bytes <= 0 then
          is_empty = is_empty and i == #ids
          break
        end
      end
    end
  end
  -- The one set that was not read comes first: if it cannot be written, nothing was.
  all('ZADD', running, leases)
  has_written = true
  all('ZREM', queue, looked)
  all('HSET', calls, written)
  if counted == '1' then all('SADD', held, mine) end
  local limited = (of_worker and 1 or 0) + (of_function and 2 or 0)
  if of_function and of_function <= taken then limited = limited + 4 end
  if of_worker and of_worker <= taken then limited = limited + 8 end
  reply[1], reply[2], reply[3] = is_empty and 0 or call('ZCARD', queue), limited, late
  return reply
end

local replies = {}
for section = 1, tonumber(ARGV[1]) do
  replies[section] = run_section(claim, section * KEYS_EACH - KEYS_EACH, tonumber(ARGV[5 + section]))
end
return refused or replies
