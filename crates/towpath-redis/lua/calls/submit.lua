-- submit: takes calls of some functions, each judged by its id, its key, the function, its workers and the backlog, in this order.
--
-- KEYS  per section: calls, queue, deadlines, delayed, function, workers, buckets, exported, running
-- ARGV  1 how many sections  2 now, ms  3 the instant since which a heartbeat counts as healthy  4 start of the names of waiting claims (``
--       no call is handed to one)  5 start of the names of processes' channels
--       then per section: how many calls, how many words each, name of the partition, the channel of the function's workers, `1` they are
--       notified although the queue is not empty, start of the names of buckets, start of the names of idempotency keys, and per call four words or seven: id, record, sequence, deadline, how
--       (`f` its id is fresh, `w` refuse without workers), key, request if that stands beside the record. Four words mean `f` and no key
-- gives per section: `A` all are accepted, {`T` or `X`, why} none is or that is not known, or per call: `A` accepted · {`E`, id, record,
--       request} was taken before · `U` unknown function · `N` no workers · {`O`, backlog, limit} overloaded · `R` came twice, ask again
-- Calls of a function whose queue is empty are handed to a claim that waits: they run when they are taken.
local KEYS_EACH, HEADER, FEW_WORDS, WORKERS_ASKED, LEASE_DIGITS = 9, 7, 4, 4, 12
local now = tonumber(ARGV[2])

-- The claim that calls are handed to, of the first function that was looked at (`false`: there is none), and what it was handed.
local claim, handed = nil, {}

-- Looks for a worker of the function whose claim waits, and whose process is there. One look for all sections.
local function find_claim(workers)
  claim = false
  for _, worker in ipairs(redis.pcall('ZRANGE', workers, -WORKERS_ASKED, -1)) do
    local waits = redis.pcall('GET', ARGV[4] .. worker)
    local ticket, process, lease, room = match(type(waits) == 'string' and waits or '', '^(%d+)\t(%w+)\t(%d+)\t(%d+)$')
    -- A lease of more digits is no time that a process has written.
    local channel = ticket and #lease <= LEASE_DIGITS and ARGV[5] .. process
    local heard = channel and redis.pcall('PUBSUB', 'NUMSUB', channel)[2]
    if heard and heard > 0 then
      local until_ = string.format('%.0f', now + tonumber(lease))
      local held_by = '\t' .. ARGV[2] .. '\t' .. lease .. '\t' .. until_ .. '\t0\t' .. worker
      claim = { worker = worker, channel = channel, lease = lease, room = tonumber(room), until_ = until_, held_by = held_by }
      claim.name = 'dt' .. #ticket .. ':' .. ticket .. 'p' .. #process .. ':' .. process .. 'w' .. #worker .. ':' .. worker
      return
    end
  end
end

-- How many calls of a section can be handed to a claim: none unless a worker that serves the function has one that waits, and the set of running
-- calls can be written.
local function room_for(k)
  if claim == nil then
    find_claim(KEYS[k + 6])
  elseif type(redis.pcall('ZSCORE', KEYS[k + 6], claim.worker)) ~= 'string' then
    return 0
  end
  return claim and type(redis.pcall('ZCARD', KEYS[k + 9])) == 'number' and claim.room or 0
end

-- The record first. If its deadline cannot stand beside it, it is taken back. The queue was read, so it can be written.
local function write(k, at, new, ends, order, waiting, max_concurrent)
  local member, channel = ARGV[at + 2], ARGV[at + 3]
  local calls, leases, left, given = KEYS[k + 1], {}, order, 0
  -- Of a call whose request stands beside its record there are more words than these.
  if waiting == 0 and ARGV[4] ~= '' and claim ~= false and not max_concurrent and #new == #order then
    given = math.min(room_for(k), #order / 2)
  end
  for i = 2, 2 * given, 2 do
    local version, kept, _, _, delivery = match(new[i], WAITING)
    new[i] = as_running(new[i], version, kept, delivery, claim.held_by)
    leases[i - 1], leases[i] = claim.until_, new[i - 1]
  end
  if given > 0 then left = { unpack(order, 2 * given + 1) } end
  call('HSET', calls, unpack(new))
  local ended_later = redis.pcall('ZADD', KEYS[k + 3], unpack(ends))
  if type(ended_later) == 'table' and ended_later.err then
    for i = 1, #new, 2 do call('HDEL', calls, new[i]) end
    error(ended_later)
  end
  has_written = true
  if given > 0 then
    call('ZADD', KEYS[k + 9], unpack(leases))
    claim.room = claim.room - given
    for i = 1, 2 * given, 2 do
      local id, record = new[i], new[i + 1]
      handed[#handed + 1] = 'f' .. #member .. ':' .. member .. 'i' .. #id .. ':' .. id .. 'r' .. #record .. ':' .. record
    end
  end
  if #left > 0 then
    call('ZADD', KEYS[k + 2], unpack(left))
    -- A notification carries no truth: without the right to send it, the call is taken all the same.
    -- What is in the queue may be nothing but lines that name no call: workers are notified now and then all the same, and remove them.
    if waiting == 0 or ARGV[at + 4] == '1' then redis.pcall('PUBLISH', channel, '') end
  end
end

-- Calls that may have been taken before, or that may be refused.
local function judge_all(k, at, limit, waiting, max_concurrent)
  local count, width, first, ended, keys_start = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), at + HEADER, ARGV[at + 5], ARGV[at + 6]
  local calls, ids, seen, replies, buckets = KEYS[k + 1], {}, {}, {}, nil
  local function words(i)
    local a = first + (i - 1) * width
    if width == FEW_WORDS then return a, 'f', '', '' end
    return a, ARGV[a + 4], ARGV[a + 5], ARGV[a + 6]
  end
  for i = 1, count do ids[i] = ARGV[first + (i - 1) * width] end
  local records, used_before = call('HMGET', calls, unpack(ids)), {}
  for i = 1, count do -- an id that is not fresh may be that of a call that has ended and is kept
    local _, how = words(i)
    if not records[i] and not find(how, 'f', 1, true) then used_before[#used_before + 1] = ids[i] end
  end
  local function in_buckets(some)
    buckets = buckets or call('ZRANGE', KEYS[k + 7], 0, -1)
    return find_ended(buckets, ended, some, now)
  end
  local kept, places = {}, {}
  if #used_before > 0 then kept, places = in_buckets(used_before) end
  local max, accepted = tonumber(limit), 0
  local backlog = max and waiting + call('ZCARD', KEYS[k + 4]) + call('ZCARD', KEYS[k + 8])

  local function was_taken(id, record, bucket)
    return { 'E', id, record, call('HGET', bucket or calls, REQUEST .. id) or '' }
  end
  local function judge(i, how, key)
    local id = ids[i]
    if records[i] then return was_taken(id, records[i]) end
    if seen[id] or key ~= '' and seen['\1' .. key] then return 'R' end
    if kept[id] then return was_taken(id, kept[id], places[id]) end
    local other = key ~= '' and call('GET', keys_start .. key)
    if other then
      local record, bucket = call('HGET', calls, other), nil
      if not record then
        local ended_records, ended_places = in_buckets({ other })
        record, bucket = ended_records[other], ended_places[other]
      end
      -- A key may outlive its call, and the id of that call may be used again.
      if record and match(record, '^[^\n]*\n[^\n]*\n([^\n]*)\n') == key then return was_taken(other, record, bucket) end
    end
    if not limit then return 'U' end
    if find(how, 'w', 1, true) and call('ZCOUNT', KEYS[k + 6], '(' .. ARGV[3], '+inf') == 0 then return 'N' end
    if max and backlog + accepted >= max then return { 'O', backlog + accepted, limit } end
  end

  local new, order, ends, named = {}, {}, {}, {}
  for i = 1, count do
    local a, how, key, request = words(i)
    local id = ids[i]
    local refused = judge(i, how, key)
    replies[i] = refused or 'A'
    if not refused then
      local n = 2 * accepted
      accepted = accepted + 1
      new[#new + 1], new[#new + 2] = id, ARGV[a + 1]
      order[n + 1], order[n + 2] = ARGV[a + 2], id
      ends[n + 1], ends[n + 2] = ARGV[a + 3], id
      if request ~= '' then new[#new + 1], new[#new + 2] = REQUEST .. id, request end
      seen[id] = true
      if key ~= '' then
        seen['\1' .. key] = true
        named[#named + 1] = { keys_start .. key, id }
      end
    end
  end
  if accepted > 0 then
    write(k, at, new, ends, order, waiting, max_concurrent)
    for _, one in ipairs(named) do call('SET', one[1], one[2]) end
  end
  if accepted == count then return 'A' end
  return replies
end

local function submit(k, at)
  -- No limit is written as `-`: a function without this field is not known.
  local about, waiting = call('HMGET', KEYS[k + 5], 'max_backlog', 'max_concurrent'), call('ZCARD', KEYS[k + 2])
  local limit, max_concurrent = about[1], about[2]
  local count, width, first = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), at + HEADER
  if width ~= FEW_WORDS or limit ~= '-' then return judge_all(k, at, limit, waiting, max_concurrent) end
  -- A fresh id was never used, so a call with one needs no judgement if it has no key and the function no limit.
  local new, order, ends, n = {}, {}, {}, 1
  for a = first, first + (count - 1) * width, width do
    local id = ARGV[a]
    new[n], new[n + 1] = id, ARGV[a + 1]
    order[n], order[n + 1] = ARGV[a + 2], id
    ends[n], ends[n + 1] = ARGV[a + 3], id
    n = n + 2
  end
  write(k, at, new, ends, order, waiting, max_concurrent)
  return 'A'
end

local at, replies = 6, {}
for section = 1, tonumber(ARGV[1]) do
  replies[section] = run_section(submit, section * KEYS_EACH - KEYS_EACH, at)
  at = at + HEADER + tonumber(ARGV[at]) * tonumber(ARGV[at + 1])
end
-- What was handed over stays there in case that the process does not hear it.
if #handed > 0 then
  local message = claim.name .. table.concat(handed)
  redis.pcall('SET', ARGV[4] .. claim.worker, message, 'PX', claim.lease)
  redis.pcall('PUBLISH', claim.channel, message)
end
return refused or replies
