-- submit: takes calls of some functions, each judged by its id, its key, the function, its workers and the backlog, in this order.
--
-- KEYS  1 calls  2 requests  3 sequence (in a Cluster: any of the others; there are the calls of one function)
--       then per function: due, index, counts, idempotency, function, workers, stream, pages
-- ARGV  1 the instant since which a heartbeat counts as healthy   2 timestamp: now in ms
--       3 `1` in a Cluster, where ids and sequences were handed out before   4 `1`: no id comes twice   5 how many functions
--       then per function: how it stands in a record, its name, the ids of its calls as a page lists them (`` they are listed one by one,
--       always in a Cluster), how many shapes
--       then per shape, which is what calls have in common: key, how (`-` plain, `w` refuse without workers), rest of the life, due,
--       item (`` none), channel (`` the list of the call), timeout, lead, mark, count of added fields, then these fields
--       then how many calls, and per call: id, params, number of its shape, how many bytes the lead and the params have (`0`: they stand
--       apart), sequence (Cluster only)
-- What was asked is the lead and the params. An entry's field `proto` is its sequence, the length of what the record says of what was
-- asked, and the mark: with it whoever reads the entry knows the call's whole life.
-- gives `A` if all are accepted, else per call: `A` accepted · {`E`, id, life, request} was taken before · {`C`, id} its id belongs to
--       another function · `U` unknown function · `N` no workers · {`O`, backlog, limit} overloaded · `R` came twice in this batch, ask again
local call, format = redis.call, string.format
local calls, requests = KEYS[1], KEYS[2]
local alone, no_id_twice = ARGV[3] ~= '1', ARGV[4] == '1'
local words = alone and 4 or 5
local DIGITS = { '1', '2', '3', '4', '5', '6', '7', '8', '9', [0] = '0' }
local replies, total, accepted_in_all, seen = {}, 0, 0, {}

local function taken_before(line, id)
  local life = call('HGET', calls, id)
  -- In whichever of its streams it is.
  local of = life and string.match(life, '^' .. string.rep('[^\n]*\n', 19) .. '([^\n\t]*\t[^\n\t]*)')
  if of ~= line then return { 'C', id } end
  return { 'E', id, life, call('HGET', requests, id) or '' }
end

-- What stands against a call; nothing: it is accepted.
local function judge(f, id, record, shape)
  local key = shape.key
  if seen[id] or (key ~= '' and seen[f.line .. '\n' .. key]) then return 'R' end
  if record then return taken_before(f.line, id) end
  if key ~= '' then
    local earlier = call('HGET', f.idempotency, key)
    if earlier then return taken_before(f.line, earlier) end
  end
  if not f.known then return 'U' end
  if shape.how == 'w' then
    f.healthy = f.healthy or call('ZCOUNT', f.workers, '(' .. ARGV[1], '+inf')
    if f.healthy == 0 then return 'N' end
  end
  if f.limit then
    if not f.backlog then
      local counts = call('HMGET', f.counts, 'queued', 'delayed')
      f.backlog = tonumber(counts[1] or 0) + tonumber(counts[2] or 0)
    end
    if f.backlog >= f.limit then return { 'O', f.backlog, f.limit } end
    f.backlog = f.backlog + 1
  end
end

-- The places of those that are accepted; the others have their replies.
local function judge_all(f, first, count, ids, records)
  local accepted = {}
  for place = 1, count do
    local id, shape = ids[place], f.shapes[tonumber(ARGV[first + place * words - words + 2])]
    local refused = judge(f, id, records[place], shape)
    replies[total + place] = refused or 'A'
    if not refused then
      seen[id] = true
      if shape.key ~= '' then seen[f.line .. '\n' .. shape.key] = true end
      accepted[#accepted + 1] = place
    end
  end
  return accepted
end

local function read_shapes(f, at, count)
  for i = 1, count do
    local shape = { key = ARGV[at], how = ARGV[at + 1], rest = '\n' .. ARGV[at + 2] .. '\n', due = ARGV[at + 3], channel = ARGV[at + 5],
      lead = ARGV[at + 7], mark = ARGV[at + 8] }
    local fields = { 'functionName', f.name, 'timeout', ARGV[at + 6], 'timestamp', ARGV[2] }
    local item, added = ARGV[at + 4], tonumber(ARGV[at + 9])
    if item ~= '' then fields[7], fields[8] = 'inputItem', item end
    for j = 1, added do fields[#fields + 1] = ARGV[at + 9 + j] end
    shape.fields = fields
    f.shapes[i] = shape
    if shape.key ~= '' or shape.how ~= '-' then f.simple = false end
    at = at + 10 + added
  end
  return at
end

-- Writes accepted calls down. `accepted` are their places; nothing: all are.
local function take(f, first, many, ids, accepted)
  local last = alone and call('INCRBY', KEYS[3], many) - many
  local lives, apart, listed, soonest = {}, {}, {}, nil
  local dues, order = {}, {}
  local tens, number, shape
  for i = 1, many do
    local place = accepted and accepted[i] or i
    local from = first + place * words - words
    local id, params, kept = ids[place], ARGV[from + 1], ARGV[from + 3]
    if ARGV[from + 2] ~= number then number, shape = ARGV[from + 2], f.shapes[tonumber(ARGV[from + 2])] end
    local sequence = ARGV[from + 4]
    if alone then
      -- To write a number anew costs more than to change its last digit.
      local digit = (last + i) % 10
      if digit == 0 or not tens then tens = last + i < 10 and '' or format('%d', (last + i - digit) / 10) end
      sequence = tens .. DIGITS[digit]
    end
    if kept == '0' then
      apart[#apart + 1] = id
      apart[#apart + 1] = shape.lead .. params
    end
    local channel = shape.channel ~= '' and shape.channel or 'function:response:' .. id
    local entry = call('XADD', f.stream, '*', 'callId', id, 'params', params, 'responseChannel', channel,
      'proto', sequence .. ':' .. kept .. shape.mark, unpack(shape.fields))
    local a = i * 2 - 1
    -- One long string and none on the way to it: the server reads every byte of each to find out whether it has it already.
    lives[a] = id
    if kept == '0' then
      lives[a + 1] = '1\nQ\n' .. entry .. '\n' .. sequence .. shape.rest .. '0\n'
    else
      lives[a + 1] = '1\nQ\n' .. entry .. '\n' .. sequence .. shape.rest .. kept .. '\n' .. shape.lead .. params
    end
    if f.paged then
      if accepted then listed[i] = id end
      if shape.due ~= soonest and (not soonest or tonumber(shape.due) < tonumber(soonest)) then soonest = shape.due end
    else
      dues[a], dues[a + 1] = shape.due, id
      order[a], order[a + 1] = sequence, id
    end
    if shape.key ~= '' then call('HSET', f.idempotency, shape.key, id) end
  end
  call('HSET', calls, unpack(lives))
  if #apart > 0 then call('HSET', requests, unpack(apart)) end
  if f.paged then
    local page = format('%d', last + 1)
    call('HSET', f.pages, page, accepted and table.concat(listed, '\n') or f.page)
    dues, order = { soonest, '\1' .. page }, { page, '\1' .. page }
  end
  call('ZADD', f.due, unpack(dues))
  call('ZADD', f.index, unpack(order))
  call('HINCRBY', f.counts, 'queued', many)
end

local at = 6
for number = 1, tonumber(ARGV[5]) do
  local k = number * 8 - 5
  local f = { due = KEYS[k + 1], index = KEYS[k + 2], counts = KEYS[k + 3], idempotency = KEYS[k + 4], workers = KEYS[k + 6],
    stream = KEYS[k + 7], pages = KEYS[k + 8], line = ARGV[at], name = ARGV[at + 1], page = ARGV[at + 2], paged = ARGV[at + 2] ~= '', shapes = {} }
  local about = call('HMGET', KEYS[k + 5], 'definition', 'max_backlog')
  f.known, f.limit = about[1], tonumber(about[2] or '')
  -- Nothing but their ids is to be looked at.
  f.simple = f.known and not f.limit and no_id_twice
  at = read_shapes(f, at + 4, tonumber(ARGV[at + 3]))
  local count, first, ids = tonumber(ARGV[at]), at + 1, {}
  for i = 1, count do ids[i] = ARGV[first + i * words - words] end
  at = first + count * words
  local records, simple = call('HMGET', calls, unpack(ids)), f.simple
  for place = 1, simple and count or 0 do
    if records[place] then simple = false end
  end
  local accepted = not simple and judge_all(f, first, count, ids, records) or nil
  local many = accepted and #accepted or count
  if simple then
    for place = 1, count do replies[total + place] = 'A' end
  end
  if many > 0 then take(f, first, many, ids, accepted) end
  total, accepted_in_all = total + count, accepted_in_all + many
end
return accepted_in_all == total and 'A' or replies
