-- submit: takes calls of one function, each judged by its id, its key, the function, its workers and the backlog, in this order.
--
-- KEYS  1 calls  2 requests  3 due  4 index  5 counts  6 idempotency  7 function  8 workers  9 stream
--       10 where  11 sequence  (both only when one server has all keys)
-- ARGV  1 the instant since which a heartbeat counts as healthy   2 the function, as it stands in `where`   3 the function's name
--       4 timestamp: now in ms   5 `1` in a Cluster, where ids and sequences were handed out before
--       then per call: id, key, how (`-` plain, `w` refuse without workers, `f` was accepted once: not judged), sequence (Cluster only),
--       rest of its life, due, params, item (`` none), channel, timeout, extras (pieces), count of added fields, then these fields
-- gives per call: `A` accepted · {`E`, id, life, request} was taken before · {`C`, id} its id belongs to another function
--       `U` unknown function · `N` no workers · {`O`, backlog, limit} overloaded · `R` came twice in this batch, ask again
local calls, requests, stream = KEYS[1], KEYS[2], KEYS[9]
local alone = ARGV[5] ~= '1'
local known = redis.call('HMGET', KEYS[7], 'definition', 'max_backlog')
local limit = tonumber(known[2] or '')
local backlog = nil
local healthy = nil
local replies, taken = {}, {}
local lives, asked, places, dues, order, entries = {}, {}, {}, {}, {}, {}

local function piece(tag, value) return tag .. #value .. ':' .. value end

local function taken_before(id)
  local life = redis.call('HGET', calls, id)
  if not life then return { 'C', id } end
  return { 'E', id, life, redis.call('HGET', requests, id) or '' }
end

-- Whether each id is taken, asked once for all of them.
local function ids_taken()
  local ids, at = {}, 6
  while at <= #ARGV do
    ids[#ids + 1] = ARGV[at]
    at = at + 12 + tonumber(ARGV[at + 11])
  end
  return redis.call('HMGET', alone and KEYS[10] or calls, unpack(ids))
end
local known_ids = ids_taken()

local function judge(place, id, key, how)
  if taken[id] or (key ~= '' and taken['key ' .. key]) then return 'R' end
  if known_ids[place] then return taken_before(id) end
  if how == 'f' then return nil end
  if key ~= '' then
    local first = redis.call('HGET', KEYS[6], key)
    if first then return taken_before(first) end
  end
  if not known[1] then return 'U' end
  if how == 'w' then
    healthy = healthy or redis.call('ZCOUNT', KEYS[8], '(' .. ARGV[1], '+inf')
    if healthy == 0 then return 'N' end
  end
  if limit then
    if not backlog then
      local counts = redis.call('HMGET', KEYS[5], 'queued', 'delayed')
      backlog = tonumber(counts[1] or 0) + tonumber(counts[2] or 0)
    end
    if backlog >= limit then return { 'O', backlog, limit } end
    backlog = backlog + 1
  end
  return nil
end

local at, count, accepted = 6, 0, 0
while at <= #ARGV do
  local id, key, how, sequence = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local rest, due, params, item = ARGV[at + 4], ARGV[at + 5], ARGV[at + 6], ARGV[at + 7]
  local channel, timeout, extras, added = ARGV[at + 8], ARGV[at + 9], ARGV[at + 10], tonumber(ARGV[at + 11])
  count = count + 1
  local refused = judge(count, id, key, how)
  if refused then
    replies[count] = refused
  else
    local entry
    if added == 0 and item ~= '' then
      entry = redis.call('XADD', stream, '*', 'callId', id, 'functionName', ARGV[3], 'params', params, 'inputItem', item,
        'responseChannel', channel, 'timeout', timeout, 'timestamp', ARGV[4], 'proto', '1')
    elseif added == 0 then
      entry = redis.call('XADD', stream, '*', 'callId', id, 'functionName', ARGV[3], 'params', params,
        'responseChannel', channel, 'timeout', timeout, 'timestamp', ARGV[4], 'proto', '1')
    else
      local fields = { 'callId', id, 'functionName', ARGV[3], 'params', params, 'responseChannel', channel, 'timeout', timeout,
        'timestamp', ARGV[4], 'proto', '1' }
      if item ~= '' then fields[#fields + 1] = 'inputItem'; fields[#fields + 1] = item end
      for i = 1, added do fields[#fields + 1] = ARGV[at + 11 + i] end
      entry = redis.call('XADD', stream, '*', unpack(fields))
    end
    lives[#lives + 1] = id
    lives[#lives + 1] = rest
    entries[#entries + 1] = entry
    asked[#asked + 1] = id
    asked[#asked + 1] = extras .. piece('p', params) .. (item ~= '' and piece('i', item) or '')
    if alone then
      places[#places + 1] = id
      places[#places + 1] = ARGV[2]
    end
    dues[#dues + 1] = due
    dues[#dues + 1] = id
    order[#order + 1] = sequence
    order[#order + 1] = id
    taken[id] = true
    if key ~= '' then
      taken['key ' .. key] = true
      redis.call('HSET', KEYS[6], key, id)
    end
    accepted = accepted + 1
    replies[count] = 'A'
  end
  at = at + 12 + added
end
if accepted > 0 then
  local last = alone and redis.call('INCRBY', KEYS[11], accepted)
  for i = 1, accepted do
    if alone then order[2 * i - 1] = last - accepted + i end
    lives[2 * i] = '1\nQ\n' .. entries[i] .. '\n' .. order[2 * i - 1] .. '\n' .. lives[2 * i]
  end
  redis.call('HSET', calls, unpack(lives))
  redis.call('HSET', requests, unpack(asked))
  redis.call('ZADD', KEYS[3], unpack(dues))
  redis.call('ZADD', KEYS[4], unpack(order))
  redis.call('HINCRBY', KEYS[5], 'queued', accepted)
  if alone then redis.call('HSET', KEYS[10], unpack(places)) end
end
return replies
