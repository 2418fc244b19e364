-- apply: makes changes that the host decided, of each call only if it is still as the host saw it.
--
-- KEYS  per section: calls, queue, running, delayed, deadlines, dead, exported, buckets
-- ARGV  1 how many sections
--       then per section: how many words follow, how many changes, `1` all of them or none, start of the names of buckets, start of the names
--       of their lists, and per change: id, start of the record as the host saw it (`` there must be none), the place it leaves, the place
--       it takes (`Q` queue, `R` running, `D` delayed, `Z` dead letters, `X` exported, `-` none), its score there, record, sequence, bucket (`` it stays
--       among the calls), how long that lives in ms, channel (`` none), message, how many commands follow, and per command: how many
--       words, the words. `MOVE field` takes a field beside the record along into the bucket. `ENTRY stream group entry legacy field` removes
--       the entry of an exported call
-- gives per section: {`T` or `X`, why}, or the numbers of the changes that were not made because the call has changed
local KEYS_EACH, WORDS = 8, 12
local PLACES = { Q = 2, R = 3, D = 4, Z = 6, X = 7 }
-- What reads a key of the kind that a command writes.
local READS = { SADD = 'SCARD', SREM = 'SCARD', ZADD = 'ZCARD', ZREM = 'ZCARD', HSET = 'HLEN', XACK = 'XLEN', XDEL = 'XLEN' }
local OPEN = { Q = true, R = true, D = true, X = true }

local function put(lists, name, value, other)
  local list = lists[name]
  if not list then
    list = {}
    lists[name] = list
  end
  list[#list + 1] = value
  if other then list[#list + 1] = other end
end

-- What is told to each channel, by all sections together.
local messages, channels = {}, {}

local function apply(k, first, count, together, ended, listed)
  local calls, buckets = KEYS[k + 1], KEYS[k + 8]
  local ids, starts, at = {}, {}, first
  for i = 1, count do
    ids[i], starts[i] = ARGV[at], at
    local commands = tonumber(ARGV[at + WORDS - 1])
    at = at + WORDS
    for _ = 1, commands do at = at + 1 + tonumber(ARGV[at]) end
  end
  local records, seen, changed = call('HMGET', calls, unpack(ids)), {}, {}
  local fits = {}
  for i = 1, count do
    local old, expected, id = records[i], ARGV[starts[i] + 1], ids[i]
    fits[i] = not seen[id] and (expected == '' and not old or expected ~= '' and old and sub(old, 1, #expected) == expected)
    seen[id] = true
    if not fits[i] then changed[#changed + 1] = i end
  end
  if together and #changed > 0 then return changed end

  local kept, gone, over, leave, take, into, told = {}, {}, {}, {}, {}, {}, {}
  for i = 1, count do
    if fits[i] then
      local a, id = starts[i], ids[i]
      local from, to, bucket, channel = ARGV[a + 2], ARGV[a + 3], ARGV[a + 7], ARGV[a + 9]
      if from ~= to and PLACES[from] then put(leave, from, id) end
      if PLACES[to] then put(take, to, ARGV[a + 4], id) end
      if OPEN[from] and not OPEN[to] then over[#over + 1] = id end
      if bucket == '' then
        kept[#kept + 1], kept[#kept + 2] = id, ARGV[a + 5]
      else
        gone[#gone + 1] = id
        local one = into[bucket]
        if not one then
          one = { lives = ARGV[a + 8], records = {}, order = {} }
          into[bucket] = one
        end
        local n = #one.records
        one.records[n + 1], one.records[n + 2] = id, ARGV[a + 5]
        one.order[n + 1], one.order[n + 2] = ARGV[a + 6], id
      end
      if channel ~= '' then told[#told + 1] = a end
    end
  end
  -- Where a call goes can be written, or this ends here. Where it stood is not asked: a line that stays is removed by whoever comes upon it.
  for place in pairs(take) do call('ZCARD', KEYS[k + PLACES[place]]) end
  for bucket, one in pairs(into) do
    one.is_new = call('HLEN', ended .. bucket) == 0
    if one.is_new then call('ZCARD', buckets) end
  end
  for i = 1, count do
    local a = starts[i] + WORDS
    for _ = 1, fits[i] and tonumber(ARGV[a - 1]) or 0 do
      local read = READS[ARGV[a + 1]]
      if read then call(read, ARGV[a + 2]) end
      a = a + 1 + tonumber(ARGV[a])
    end
  end
  has_written = true
  all('HSET', calls, kept)
  if #over > 0 then redis.pcall('ZREM', KEYS[k + 5], unpack(over)) end
  for place, members in pairs(leave) do redis.pcall('ZREM', KEYS[k + PLACES[place]], unpack(members)) end
  for place, members in pairs(take) do all('ZADD', KEYS[k + PLACES[place]], members) end
  for bucket, one in pairs(into) do
    all('HSET', ended .. bucket, one.records)
    redis.pcall('ZADD', listed .. bucket, unpack(one.order))
    if one.is_new then
      -- A bucket's name ends with the instant of its end. Names of buckets that have ended go with the first bucket that is made after them.
      local ends = match(bucket, '%d+$')
      call('ZREMRANGEBYSCORE', buckets, '-inf', string.format('(%.0f', tonumber(ends) - tonumber(one.lives)))
      call('ZADD', buckets, ends, bucket)
      call('PEXPIRE', ended .. bucket, one.lives)
      call('PEXPIRE', listed .. bucket, one.lives)
    end
  end
  for i = 1, count do
    local a = starts[i] + WORDS
    for _ = 1, fits[i] and tonumber(ARGV[a - 1]) or 0 do
      local words = tonumber(ARGV[a])
      if ARGV[a + 1] == 'MOVE' then
        local value = call('HGET', calls, ARGV[a + 2])
        if value then
          call('HSET', ended .. ARGV[starts[i] + 7], ARGV[a + 2], value)
          call('HDEL', calls, ARGV[a + 2])
        end
      elseif ARGV[a + 1] == 'ENTRY' then
        -- Legacy peers may have put anything there: their trouble does not keep the call from its change.
        redis.pcall('XACK', ARGV[a + 2], ARGV[a + 3], ARGV[a + 4])
        redis.pcall('XDEL', ARGV[a + 2], ARGV[a + 4])
        redis.pcall('HDEL', ARGV[a + 5], ARGV[a + 6])
      elseif ARGV[a + 1] == 'PUBLISH' then
        redis.pcall(unpack(ARGV, a + 1, a + words))
      else
        call(unpack(ARGV, a + 1, a + words))
      end
      a = a + 1 + words
    end
  end
  all('HDEL', calls, gone)
  for _, a in ipairs(told) do
    local channel = ARGV[a + 9]
    if not messages[channel] then channels[#channels + 1] = channel end
    put(messages, channel, ARGV[a + 10])
  end
  return changed
end

local at, replies = 2, {}
for section = 1, tonumber(ARGV[1]) do
  local words, count = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  replies[section] = run_section(apply, section * KEYS_EACH - KEYS_EACH, at + 5, count, ARGV[at + 2] == '1', ARGV[at + 3], ARGV[at + 4])
  at = at + 1 + words
end
-- A notification carries no truth: without the right to send it, the changes are made all the same.
for _, channel in ipairs(channels) do redis.pcall('PUBLISH', channel, table.concat(messages[channel])) end
return replies
