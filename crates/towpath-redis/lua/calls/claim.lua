-- claim: delivers waiting calls of some functions to a worker, oldest first.
--
-- KEYS  per section: calls, queue, running, parked, function, the calls that this worker holds by the store's count
-- ARGV  1 how many sections  2 worker  3 now, ms  4 lease, ms  5 how many calls at most in all
--       then per section: how many calls at most
-- gives per section: {`T` or `X`, why}, or {how many are left in the queue, what limits it, ids of calls past their deadline, then per call:
--       id, record, request if that stands beside it}. What limits it: 0 nothing, 1 this worker's concurrency, 2 the function's, which others share
-- A line of the queue whose call does not wait is removed. A call past its deadline leaves the queue; its timer ends it.
local KEYS_EACH, LOOKED_MAX, LATE_MAX = 6, 1024, 256
local worker, now, lease, left = ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
local until_ = string.format('%.0f', now + tonumber(lease))
local HELD = '\t' .. ARGV[3] .. '\t' .. lease .. '\t' .. until_ .. '\t'

local function claim(k, max)
  local calls, queue, running, parked, about, held = KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4], KEYS[k + 5], KEYS[k + 6]
  local limits = call('HMGET', about, 'max_concurrent', 'offer:' .. worker)
  local room, limited = math.min(max, left), 0
  local of_worker = limits[2] and tonumber(limits[2]) - call('SCARD', held) or room
  local of_function = limits[1] and tonumber(limits[1]) - call('ZCARD', running) + call('SCARD', parked) or room
  if limits[2] then limited = 1 end
  if limits[1] and of_function <= of_worker then limited = 2 end
  room = math.min(room, of_worker, of_function)
  local counted = limits[2] and '1' or '0'
  local reply, late, looked = { 0, limited, {} }, {}, {}
  local written, leases, mine, is_empty = {}, {}, {}, false
  while room > 0 and #looked < LOOKED_MAX and not is_empty do
    local asked = math.min(room, LOOKED_MAX - #looked)
    local ids = call('ZRANGE', queue, #looked, #looked + asked - 1)
    is_empty = #ids < asked
    local records = #ids > 0 and call('HMGET', calls, unpack(ids))
    for i, id in ipairs(ids) do
      looked[#looked + 1] = id
      local old = records[i]
      local version, delivery, deadline, beside
      if old then version, delivery, deadline, beside = match(old, WAITING) end
      if version and now >= tonumber(deadline) then
        if #late < LATE_MAX then late[#late + 1] = id end
      elseif version then
        room, left = room - 1, left - 1
        local record = FORMAT .. 'R\t' .. (version + 1) .. '\t' .. (delivery + 1) .. HELD .. counted .. '\t' .. worker .. sub(old, find(old, '\n', 1, true), -1)
        local n = #written
        written[n + 1], written[n + 2] = id, record
        leases[n + 1], leases[n + 2] = until_, id
        mine[#mine + 1] = id
        n = #reply
        reply[n + 1], reply[n + 2], reply[n + 3] = id, record, ''
        if beside == '1' then reply[n + 3] = call('HGET', calls, REQUEST .. id) or '' end
      end
    end
  end
  -- The one set that was not read comes first: if it cannot be written, nothing was.
  all('ZADD', running, leases)
  has_written = true
  all('ZREM', queue, looked)
  all('HSET', calls, written)
  if counted == '1' then all('SADD', held, mine) end
  reply[1], reply[3] = is_empty and 0 or call('ZCARD', queue), late
  return reply
end

local replies = {}
for section = 1, tonumber(ARGV[1]) do
  replies[section] = run_section(claim, section * KEYS_EACH - KEYS_EACH, tonumber(ARGV[5 + section]))
end
return replies
