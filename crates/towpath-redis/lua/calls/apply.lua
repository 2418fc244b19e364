-- apply: makes changes that the host decided: all of a section, or none if a call is not as the host saw it.
--
-- KEYS  per section: calls, queue, running, delayed, exported, dead, deadlines, buckets
-- ARGV  1 how many sections
--       then per section: how many words follow, start of the names of buckets, start of the names of their lists, how many groups, and per
--       group of changes that are alike: start of their records as the host saw them, up to the sequence (`` there must be no record), the
--       place they leave and the place they take (numbers of keys, 2 to 6; 0 none), bucket (`` they stay among the calls), how long that lives in ms, channel (`` none), messages, how many commands go with them, how many words
--       a change has, how many changes; per change: id, record, sequence, and a fourth word if its score is not the sequence; per command:
--       how many words, the words. `MOVE field` takes a field beside the record along into the bucket. `ENTRY stream group entry legacy
--       field` removes the entry of an exported call
-- gives per section: {`T` or `X`, why}, or the numbers of the changes whose call has changed: without one, all of them were made
local KEYS_EACH, HEADER, LAST_OPEN, DEADLINES, BUCKETS = 8, 10, 5, 7, 8

-- What is told to each channel, by all sections together.
local messages, channels = {}, {}

-- Reads a group and compares its calls with their records. The numbers of those that have changed are added to `changed`.
local function compare(k, at, number, changed, ended)
  local start, width, count = ARGV[at], tonumber(ARGV[at + 8]), tonumber(ARGV[at + 9])
  local first, ids = at + HEADER, {}
  for i = 1, count do ids[i] = ARGV[first + (i - 1) * width] end
  local records = call('HMGET', KEYS[k + 1], unpack(ids))
  for i = 1, count do
    local old, fits = records[i], nil
    if start == '' then
      fits = not old
    else
      fits = old and sub(old, 1, #start) == start and match(old, '%d+', #start + 1) == ARGV[first + (i - 1) * width + 2]
    end
    if not fits then changed[#changed + 1] = number + i end
  end
  -- Where they go can be written, or this ends here. Where they stood is not asked: a line that stays is removed when it is read.
  local to, bucket, is_new, commands = tonumber(ARGV[at + 2]), ARGV[at + 3], false, tonumber(ARGV[at + 7])
  if to > 0 then call('ZCARD', KEYS[k + to]) end
  if bucket ~= '' then
    is_new = call('HLEN', ended .. bucket) == 0
    if is_new then call('ZCARD', KEYS[k + BUCKETS]) end
  end
  return { at = at, ids = ids, first = first, width = width, count = count, to = to, bucket = bucket, is_new = is_new, commands = commands }
end

-- The keys that the commands of a group write can be written, or this ends here. Returns the place behind them.
local function check_commands(a, count)
  -- What reads a key of the kind that a command writes. A set from which something is only removed is not asked: what stays there does no harm.
  local reads = { SADD = 'SCARD', ZADD = 'ZCARD', HSET = 'HLEN', XACK = 'XLEN', XDEL = 'XLEN' }
  for _ = 1, count do
    local read = reads[ARGV[a + 1]]
    if read then call(read, ARGV[a + 2]) end
    a = a + 1 + tonumber(ARGV[a])
  end
  return a
end

local function run_command(calls, bucket, a)
  local name, words = ARGV[a + 1], tonumber(ARGV[a])
  if name == 'MOVE' then
    local value = call('HGET', calls, ARGV[a + 2])
    if value then
      call('HSET', bucket, ARGV[a + 2], value)
      call('HDEL', calls, ARGV[a + 2])
    end
  elseif name == 'ENTRY' then
    -- Legacy peers may have put anything there: their trouble does not keep the call from its change.
    redis.pcall('XACK', ARGV[a + 2], ARGV[a + 3], ARGV[a + 4])
    redis.pcall('XDEL', ARGV[a + 2], ARGV[a + 4])
    redis.pcall('HDEL', ARGV[a + 5], ARGV[a + 6])
  elseif name == 'PUBLISH' or name == 'SREM' or name == 'ZREM' then
    redis.pcall(unpack(ARGV, a + 1, a + words))
  else
    call(unpack(ARGV, a + 1, a + words))
  end
  return a + 1 + words
end

local function write(k, group, ended, listed)
  local at, ids, calls, bucket = group.at, group.ids, KEYS[k + 1], group.bucket
  local from, to, channel = tonumber(ARGV[at + 1]), group.to, ARGV[at + 5]
  local records, order, score = {}, {}, group.width - 1
  for i = 1, group.count do
    local a, n, id = group.first + (i - 1) * group.width, 2 * i - 1, ids[i]
    records[n], records[n + 1] = id, ARGV[a + 1]
    order[n], order[n + 1] = ARGV[a + score], id
  end
  if bucket == '' then call('HSET', calls, unpack(records)) end
  has_written = true
  if from > 0 and from <= LAST_OPEN and (to == 0 or to > LAST_OPEN) then redis.pcall('ZREM', KEYS[k + DEADLINES], unpack(ids)) end
  if from ~= to and from > 0 then redis.pcall('ZREM', KEYS[k + from], unpack(ids)) end
  if to > 0 then call('ZADD', KEYS[k + to], unpack(order)) end
  if bucket ~= '' then
    call('HSET', ended .. bucket, unpack(records))
    redis.pcall('ZADD', listed .. bucket, unpack(order))
    if group.is_new then
      -- A bucket's name ends with the instant of its end. Names of buckets that have ended go with the first bucket that is made after them.
      local ends, lives, buckets = match(bucket, '%d+$'), ARGV[at + 4], KEYS[k + BUCKETS]
      call('ZREMRANGEBYSCORE', buckets, '-inf', string.format('(%.0f', tonumber(ends) - tonumber(lives)))
      call('ZADD', buckets, ends, bucket)
      call('PEXPIRE', ended .. bucket, lives)
      call('PEXPIRE', listed .. bucket, lives)
    end
  end
  local a = group.first + group.count * group.width
  for _ = 1, group.commands do a = run_command(calls, ended .. bucket, a) end
  if bucket ~= '' then call('HDEL', calls, unpack(ids)) end
  if channel ~= '' then
    local told = messages[channel]
    if not told then
      told = {}
      messages[channel], channels[#channels + 1] = told, channel
    end
    told[#told + 1] = ARGV[at + 6]
  end
end

local function apply(k, at, count, ended, listed)
  local groups, changed, number = {}, {}, 0
  for g = 1, count do
    local group = compare(k, at, number, changed, ended)
    groups[g], number, at = group, number + group.count, group.first + group.count * group.width
    if group.commands > 0 then at = check_commands(at, group.commands) end
  end
  if #changed > 0 then return changed end
  for g = 1, count do write(k, groups[g], ended, listed) end
  return changed
end

local at, replies = 2, {}
for section = 1, tonumber(ARGV[1]) do
  local words = tonumber(ARGV[at])
  replies[section] = run_section(apply, section * KEYS_EACH - KEYS_EACH, at + 4, tonumber(ARGV[at + 3]), ARGV[at + 1], ARGV[at + 2])
  at = at + 1 + words
end
-- A notification carries no truth: without the right to send it, the changes are made all the same.
for _, channel in ipairs(channels) do
  local told = messages[channel]
  redis.pcall('PUBLISH', channel, told[2] and table.concat(told) or told[1])
end
return refused or replies
