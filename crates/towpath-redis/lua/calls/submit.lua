-- submit: takes calls of one function, each judged by its id, its key, the function, its workers and the backlog, in this order.
--
-- KEYS  1 calls  2 requests  3 due  4 index  5 counts  6 idempotency  7 function  8 workers  9 stream
--       10 pages  11 sequence  (only when one server has all keys, and the calls of all functions are in one of them)
-- ARGV  1 the instant since which a heartbeat counts as healthy   2 the function, as it stands in a record   3 the function's name
--       4 timestamp: now in ms   5 `1` in a Cluster, where ids and sequences were handed out before
--       6 `1`: the calls are listed on a page; not in a Cluster   7 `1`: no id comes twice   8 how many shapes
--       then per shape, which is what calls have in common: key, how (`-` plain, `w` refuse without workers), rest of the life, due,
--       item (`` none), channel (`` the list of the call), timeout, lead, mark, count of added fields, then these fields
--       then per call: id, params, number of its shape, how many bytes the lead and the params have (`0`: they stand apart),
--       sequence (Cluster only)
-- What was asked is the lead and the params. An entry's field `proto` is its sequence, the length of what the record says of what was
-- asked, and the mark: with it whoever reads the entry knows the call's whole life.
-- gives `A` if all are accepted, else per call: `A` accepted · {`E`, id, life, request} was taken before · {`C`, id} its id belongs to
--       another function · `U` unknown function · `N` no workers · {`O`, backlog, limit} overloaded · `R` came twice in this batch, ask again
local call = redis.call
local calls, requests, stream = KEYS[1], KEYS[2], KEYS[9]
local alone = ARGV[5] ~= '1'
local known = call('HMGET', KEYS[7], 'definition', 'max_backlog')
local limit = tonumber(known[2] or '')
local backlog, healthy
-- Nothing but its id is to be looked at.
local simple = known[1] and not limit and ARGV[7] == '1'

local shapes, at = {}, 9
for i = 1, tonumber(ARGV[8]) do
  local shape = { key = ARGV[at], how = ARGV[at + 1], rest = '\n' .. ARGV[at + 2] .. '\n', due = ARGV[at + 3], channel = ARGV[at + 5],
    lead = ARGV[at + 7], mark = ARGV[at + 8] }
  local fields = { 'functionName', ARGV[3], 'timeout', ARGV[at + 6], 'timestamp', ARGV[4] }
  local item, added = ARGV[at + 4], tonumber(ARGV[at + 9])
  if item ~= '' then fields[7], fields[8] = 'inputItem', item end
  for j = 1, added do fields[#fields + 1] = ARGV[at + 9 + j] end
  shape.fields = fields
  shapes[string.format('%d', i)] = shape
  if shape.key ~= '' or shape.how ~= '-' then simple = false end
  at = at + 10 + added
end

local first, words = at, alone and 4 or 5
local ids, count = {}, 0
for i = first, #ARGV, words do
  count = count + 1
  ids[count] = ARGV[i]
end
local taken = call('HMGET', calls, unpack(ids))
local seen = {}

local FUNCTION = '^' .. string.rep('[^\n]*\n', 19) .. '([^\n]*)\n'
local function taken_before(id)
  local life = call('HGET', calls, id)
  if not life or string.match(life, FUNCTION) ~= ARGV[2] then return { 'C', id } end
  return { 'E', id, life, call('HGET', requests, id) or '' }
end

local function judge(place, id, shape)
  local key = shape.key
  if seen[id] or (key ~= '' and seen['key ' .. key]) then return 'R' end
  if taken[place] then return taken_before(id) end
  if key ~= '' then
    local earlier = call('HGET', KEYS[6], key)
    if earlier then return taken_before(earlier) end
  end
  if not known[1] then return 'U' end
  if shape.how == 'w' then
    healthy = healthy or call('ZCOUNT', KEYS[8], '(' .. ARGV[1], '+inf')
    if healthy == 0 then return 'N' end
  end
  if limit then
    if not backlog then
      local counts = call('HMGET', KEYS[5], 'queued', 'delayed')
      backlog = tonumber(counts[1] or 0) + tonumber(counts[2] or 0)
    end
    if backlog >= limit then return { 'O', backlog, limit } end
    backlog = backlog + 1
  end
end

if simple then
  for place = 1, count do
    if taken[place] then
      simple = false
      break
    end
  end
end
local replies, accepted = {}, {}
for place = 1, simple and 0 or count do
  local id, shape = ids[place], shapes[ARGV[first + place * words - words + 2]]
  local refused = judge(place, id, shape)
  if refused then
    replies[place] = refused
  else
    seen[id] = true
    if shape.key ~= '' then seen['key ' .. shape.key] = true end
    accepted[#accepted + 1] = place
    replies[place] = 'A'
  end
end
local many = simple and count or #accepted
if many == 0 then return replies end

local last = alone and call('INCRBY', KEYS[11], many) - many
local paged = ARGV[6] == '1'
local lives, apart, taken_ids, soonest = {}, {}, {}, nil
local dues, order = {}, {}
for i = 1, many do
  local place = simple and i or accepted[i]
  local from = first + place * words - words
  local id, params, shape, kept = ids[place], ARGV[from + 1], shapes[ARGV[from + 2]], ARGV[from + 3]
  local sequence = alone and string.format('%d', last + i) or ARGV[from + 4]
  local asked = shape.lead .. params
  if kept == '0' then
    apart[#apart + 1] = id
    apart[#apart + 1] = asked
    asked = ''
  end
  local channel = shape.channel ~= '' and shape.channel or 'function:response:' .. id
  local entry = call('XADD', stream, '*', 'callId', id, 'params', params, 'responseChannel', channel,
    'proto', sequence .. ':' .. kept .. shape.mark, unpack(shape.fields))
  local a = i * 2 - 1
  lives[a], lives[a + 1] = id, '1\nQ\n' .. entry .. '\n' .. sequence .. shape.rest .. kept .. '\n' .. asked
  if paged then
    taken_ids[i] = id
    if shape.due ~= soonest and (not soonest or tonumber(shape.due) < tonumber(soonest)) then soonest = shape.due end
  else
    dues[a], dues[a + 1] = shape.due, id
    order[a], order[a + 1] = sequence, id
  end
  if shape.key ~= '' then call('HSET', KEYS[6], shape.key, id) end
end
call('HSET', calls, unpack(lives))
if #apart > 0 then call('HSET', requests, unpack(apart)) end
if paged then
  local number = string.format('%d', last + 1)
  call('HSET', KEYS[10], number, table.concat(taken_ids, '\n'))
  dues, order = { soonest, '\1' .. number }, { number, '\1' .. number }
end
call('ZADD', KEYS[3], unpack(dues))
call('ZADD', KEYS[4], unpack(order))
call('HINCRBY', KEYS[5], 'queued', many)
return many == count and 'A' or replies
