-- registry/view.lua: all that people ask about one function, read at one instant. Writes nothing.
-- KEYS  definition  hash     counts  hash     workers  sorted set     ready  sorted set     calls  hash     stream  stream
-- ARGV  group       consumer group of the stream
--       look_ahead  how many waiting entries of the stream to look at
-- reply {} : not known
--       {definition, {queued, delayed, running, parked, dead}, {worker, heartbeat, ..}, oldest ready life or false,
--        {{entry id, its `timestamp` or '', its life or ''}, ..}}: entries that nobody has read yet, oldest first
local definition_key, counts_key, workers, ready, calls, stream = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local group, look_ahead = ARGV[1], ARGV[2]

local definition = redis.call('HGET', definition_key, 'definition')
if not definition then return {} end

-- From the start when the group was destroyed: then nobody has read anything.
local function unread_from()
  local groups = redis.pcall('XINFO', 'GROUPS', stream)
  if groups.err then return '-' end
  for _, info in ipairs(groups) do
    local fields = {}
    for i = 1, #info, 2 do fields[info[i]] = info[i + 1] end
    if fields['name'] == group then return '(' .. fields['last-delivered-id'] end
  end
  return '-'
end

local unread = {}
local entries = redis.pcall('XRANGE', stream, unread_from(), '+', 'COUNT', look_ahead)
if not entries.err then
  for _, entry in ipairs(entries) do
    local call_id, timestamp
    for i = 1, #entry[2], 2 do
      if entry[2][i] == 'callId' then call_id = entry[2][i + 1] end
      if entry[2][i] == 'timestamp' then timestamp = entry[2][i + 1] end
    end
    -- An entry without one is no call: old workers write such to make the stream.
    if call_id then
      unread[#unread + 1] = {entry[1], timestamp or '', redis.call('HGET', calls, call_id) or ''}
    end
  end
end

local first = redis.call('ZRANGE', ready, 0, 0)[1]
return {
  definition,
  redis.call('HMGET', counts_key, 'queued', 'delayed', 'running', 'parked', 'dead'),
  redis.call('ZRANGE', workers, 0, -1, 'WITHSCORES'),
  first and redis.call('HGET', calls, first) or false,
  unread,
}
