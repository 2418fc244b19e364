-- submit: takes calls of some functions, each judged by its id, its key, the function, its workers and the backlog, in this order.
--
-- KEYS  per section: calls, queue, deadlines, delayed, function, workers, buckets, exported
-- ARGV  1 how many sections  2 now, ms  3 the instant since which a heartbeat counts as healthy
--       then per section: how many calls, the channel of the function's workers, start of the names of buckets, start of the names of
--       idempotency keys, and per call: id, how (`f` its id is fresh, `w` refuse without workers), key, sequence, deadline, record, request
--       if that stands beside the record
-- gives per section: `A` all are accepted, {`T` or `X`, why} none is or that is not known, or per call: `A` accepted · {`E`, id, record,
--       request} was taken before · `U` unknown function · `N` no workers · {`O`, backlog, limit} overloaded · `R` came twice, ask again
local WORDS, KEYS_EACH = 7, 8
local now = tonumber(ARGV[2])

local function submit(k, first, count, channel, ended, keys_start)
  local calls, queue, deadlines, delayed, about, workers = KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4], KEYS[k + 5], KEYS[k + 6]
  -- No limit is written as `-`: a function without this field is not known.
  local limit, waiting = call('HGET', about, 'max_backlog'), call('ZCARD', queue)
  local new, order, ends, named, accepted = {}, {}, {}, {}, 0

  local function accept(at)
    local n, id, request = 2 * accepted, ARGV[at], ARGV[at + 6]
    accepted = accepted + 1
    new[#new + 1], new[#new + 2] = id, ARGV[at + 5]
    order[n + 1], order[n + 2] = ARGV[at + 3], id
    ends[n + 1], ends[n + 2] = ARGV[at + 4], id
    if request ~= '' then new[#new + 1], new[#new + 2] = REQUEST .. id, request end
  end
  -- The record first. If its deadline cannot stand beside it, it is taken back. The queue was read, so it can be written.
  local function write()
    call('HSET', calls, unpack(new))
    local ended_later = redis.pcall('ZADD', deadlines, unpack(ends))
    if type(ended_later) == 'table' and ended_later.err then
      for i = 1, #new, 2 do call('HDEL', calls, new[i]) end
      error(ended_later)
    end
    has_written = true
    call('ZADD', queue, unpack(order))
    for _, one in ipairs(named) do call('SET', one[1], one[2]) end
    -- A notification carries no truth: without the right to send it, the call is taken all the same.
    if waiting == 0 then redis.pcall('PUBLISH', channel, '') end
  end

  -- A fresh id was never used, so a call with one needs no judgement if it has no key and the function no limit.
  local is_plain = limit == '-'
  for at = first, first + (count - 1) * WORDS, WORDS do
    is_plain = is_plain and ARGV[at + 1] == 'f' and ARGV[at + 2] == ''
  end
  if is_plain then
    for at = first, first + (count - 1) * WORDS, WORDS do accept(at) end
    write()
    return 'A'
  end

  local ids, seen, replies, buckets = {}, {}, {}, nil
  for i = 1, count do ids[i] = ARGV[first + i * WORDS - WORDS] end
  local records, used_before = call('HMGET', calls, unpack(ids)), {}
  for i = 1, count do -- an id that is not fresh may be that of a call that has ended and is kept
    if not records[i] and not find(ARGV[first + i * WORDS - WORDS + 1], 'f', 1, true) then used_before[#used_before + 1] = ids[i] end
  end
  local function in_buckets(some)
    buckets = buckets or call('ZRANGE', KEYS[k + 7], 0, -1)
    return find_ended(buckets, ended, some, now)
  end
  local kept, places = {}, {}
  if #used_before > 0 then kept, places = in_buckets(used_before) end
  local max = tonumber(limit)
  local backlog = max and waiting + call('ZCARD', delayed) + call('ZCARD', KEYS[k + 8])

  local function was_taken(id, record, bucket)
    return { 'E', id, record, call('HGET', bucket or calls, REQUEST .. id) or '' }
  end
  local function judge(i, at)
    local id, how, key = ids[i], ARGV[at + 1], ARGV[at + 2]
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
      if record and match(record, KEY) == key then return was_taken(other, record, bucket) end
    end
    if not limit then return 'U' end
    if find(how, 'w', 1, true) and call('ZCOUNT', workers, '(' .. ARGV[3], '+inf') == 0 then return 'N' end
    if max and backlog + accepted >= max then return { 'O', backlog + accepted, limit } end
  end

  for i = 1, count do
    local at = first + i * WORDS - WORDS
    local id, key = ids[i], ARGV[at + 2]
    local refused = judge(i, at)
    replies[i] = refused or 'A'
    if not refused then
      accept(at)
      seen[id] = true
      if key ~= '' then
        seen['\1' .. key] = true
        named[#named + 1] = { keys_start .. key, id }
      end
    end
  end
  if accepted > 0 then write() end
  if accepted == count then return 'A' end
  return replies
end

local at, replies = 4, {}
for section = 1, tonumber(ARGV[1]) do
  local count = tonumber(ARGV[at])
  replies[section] = run_section(submit, section * KEYS_EACH - KEYS_EACH, at + 4, count, ARGV[at + 1], ARGV[at + 2], ARGV[at + 3])
  at = at + 4 + count * WORDS
end
return replies
