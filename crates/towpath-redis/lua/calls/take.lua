-- take: delivers waiting calls of one function to a worker: those that wait outside the stream, or those it has just read from it.
--
-- KEYS  1 calls  2 requests  3 due  4 ready  5 aside  6 counts  7 busy  8 function  9 stream  10 touched
-- ARGV  1 group  2 worker  3 now  4 lease, ms  5 how many it wants  6 `1`: look outside the stream
--       7 `1`: from now on the worker may be delivered calls that are not written down at once, so its lease is
--       then per entry that was read: its place in the stream, its call id
-- gives {room left, late, strangers, limited, taken, taken…}: room left says how many more it may be given; `late` are ids whose deadline has
--       passed, which the host ends; `strangers` are places in the stream of calls that have no record; `limited` is 2 when the function limits
--       what runs at once, 1 when only this worker does, -1 when nobody does but calls that wait are counted, 0 when nothing is; each taken is
--       {id, life} or, from outside the stream, {id, life, request}
-- An entry whose call is not waiting there is a copy, or was dealt with: it is acknowledged and nothing else.
local calls, stream = KEYS[1], KEYS[9]
local group, worker, now, lease, want = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
local until_ = string.format('%.0f', now + tonumber(lease))
local HEAD = '^(%d+)\n(%u)\n([^\n]*)\n(%d+)\n(%d+)\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n%d(%d%d)\n(%d+)\n(%d+)\n(.*)$'

local limits = redis.call('HMGET', KEYS[8], 'max_concurrent', 'offer:' .. worker, 'lease:' .. worker, 'max_backlog')
if ARGV[7] == '1' and limits[3] ~= lease then redis.call('HSET', KEYS[8], 'lease:' .. worker, lease) end
local function room_under(limit, count) return limit and (tonumber(limit) - count) or want end
local room = want
if limits[1] then
  local counts = redis.call('HMGET', KEYS[6], 'running', 'parked')
  room = math.min(room, room_under(limits[1], tonumber(counts[1] or 0) - tonumber(counts[2] or 0)))
end
if limits[2] then
  local busy = redis.call('HMGET', KEYS[7], 'r:' .. worker, 'p:' .. worker)
  room = math.min(room, room_under(limits[2], tonumber(busy[1] or 0) - tonumber(busy[2] or 0)))
end
room = math.max(room, 0)

local late, strangers, taken = {}, {}, {}
local lives, dues, acks, dels, again, aside, touched, left = {}, {}, {}, {}, {}, {}, {}, {}

local function write(id, life)
  lives[#lives + 1] = id
  lives[#lives + 1] = life
end

local FRESH = '^(%d+)\n0\n\n\n0\n\n00(%d\n%d+\n(%d+)\n.*)$'
local held = worker .. '\n' .. ARGV[3] .. '\n' .. lease .. '\n' .. until_ .. '\n0'

local function hand_over(id, life, deadline, place)
  room = room - 1
  write(id, life)
  if tonumber(until_) < tonumber(deadline) then
    dues[#dues + 1] = until_
    dues[#dues + 1] = id
  end
  if place == '' then
    aside[#aside + 1] = id
    taken[#taken + 1] = { id, life, redis.call('HGET', KEYS[2], id) or '' }
  else
    taken[#taken + 1] = { id, life }
    touched[#touched + 1] = id
  end
end

-- One that was never delivered, which most are: little needs to be read of its life. False: it is not such a one.
local function offer_fresh(id, old, place)
  local start = '1\nQ\n' .. place .. '\n'
  if room == 0 or string.sub(old, 1, #start) ~= start then return false end
  local sequence, rest, deadline = string.match(old, FRESH, #start + 1)
  if not sequence or now >= tonumber(deadline) then return false end
  hand_over(id, '2\nR\n' .. place .. '\n' .. sequence .. '\n1\n' .. held .. '0' .. rest, deadline, place)
  return true
end

-- Hands one call over, or says why not. `place` is its place in the stream, empty for one outside.
local function offer(id, old, place)
  if old and place ~= '' and offer_fresh(id, old, place) then return end
  local version, state, entry, sequence, number, cancel, submitted, deadline, rest
  if old then version, state, entry, sequence, number, cancel, submitted, deadline, rest = string.match(old, HEAD) end
  if state ~= 'Q' or entry ~= place then
    if place ~= '' then acks[#acks + 1] = place; dels[#dels + 1] = place end
    return
  end
  version = string.format('%.0f', tonumber(version) + 1)
  if room == 0 then
    -- Read from the stream, but there is no room for it: it waits outside.
    acks[#acks + 1] = place
    left[#left + 1] = id
    again[#again + 1] = sequence
    again[#again + 1] = id
    write(id, version .. '\nQ\n\n' .. sequence .. '\n' .. number .. string.match(old, '^%d+\n%u\n[^\n]*\n%d+\n%d+(\n.*)$'))
    return
  end
  if now >= tonumber(deadline) then
    late[#late + 1] = id
    return
  end
  number = string.format('%.0f', tonumber(number) + 1)
  local life = version .. '\nR\n' .. entry .. '\n' .. sequence .. '\n' .. number .. '\n' .. held .. cancel .. '\n' .. submitted .. '\n'
    .. deadline .. '\n' .. rest
  hand_over(id, life, deadline, place)
end

if ARGV[6] == '1' and room > 0 then
  -- Late ones do not count, so it may take more than one look to fill the room.
  local from = 0
  while room > 0 do
    local ids = redis.call('ZRANGE', KEYS[4], from, from + room - 1)
    if #ids == 0 then break end
    from = from + #ids
    local old = redis.call('HMGET', calls, unpack(ids))
    for i, id in ipairs(ids) do offer(id, old[i], '') end
  end
end
if #ARGV > 7 then
  local ids = {}
  for at = 9, #ARGV, 2 do ids[#ids + 1] = ARGV[at] end
  local old = redis.call('HMGET', calls, unpack(ids))
  local seen = {}
  for i, id in ipairs(ids) do
    local place = ARGV[6 + 2 * i]
    if not old[i] then
      strangers[#strangers + 1] = place
    elseif seen[id] then
      acks[#acks + 1] = place
      dels[#dels + 1] = place
    else
      seen[id] = true
      offer(id, old[i], place)
    end
  end
end

local function all(command, key, values) if #values > 0 then redis.call(command, key, unpack(values)) end end
all('HSET', calls, lives)
all('ZADD', KEYS[3], dues)
all('ZREM', KEYS[4], aside)
all('ZADD', KEYS[4], again)
all('SADD', KEYS[5], aside)
all('SADD', KEYS[10], touched)
all('SREM', KEYS[10], left)
if #acks > 0 then redis.call('XACK', stream, group, unpack(acks)) end
all('XDEL', stream, dels)
if #taken > 0 then
  redis.call('HINCRBY', KEYS[6], 'queued', -#taken)
  redis.call('HINCRBY', KEYS[6], 'running', #taken)
  redis.call('HINCRBY', KEYS[7], 'r:' .. worker, #taken)
end
local reply = { room, late, strangers, limits[1] and 2 or limits[2] and 1 or limits[4] and -1 or 0 }
for i = 1, #taken do reply[4 + i] = taken[i] end
return reply
