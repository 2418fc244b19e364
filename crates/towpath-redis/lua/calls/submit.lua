-- submit: takes calls of some functions, each judged by its id, its key, the function, its workers and the backlog, in this order.
--
-- KEYS  1 calls  2 requests  3 sequence (in a Cluster: any of the others; there are the calls of one function)  4 pages
--       then per function: due, index, counts, idempotency, function, workers, stream
-- ARGV  1 the instant since which a heartbeat counts as healthy   2 timestamp: now in ms
--       3 `1` in a Cluster, where ids and sequences were handed out before   4 `1`: no id comes twice   5 how many functions
--       6 how many shapes, then per shape, which is what calls have in common: key, how (`-` plain, `w` refuse without workers), rest of
--       the life but for the function, due, item (`` none), channel (`` the list of the call), timeout, lead, mark, count of added fields,
--       then these fields
--       then per function: how it stands in a record, its name, the ids of its calls as a page lists them (`` they are listed one by one,
--       always in a Cluster), how many calls, and per call: id, params, number of its shape, how many bytes the lead and the params have
--       (`0`: they stand apart), sequence (Cluster only)
-- What was asked is the lead and the params. An entry's field `proto` is its sequence, the length of what the record says of what was
-- asked, and the mark: with it whoever reads the entry knows the call's whole life.
-- gives `A` if all are accepted, else per call: `A` accepted · {`E`, id, life, request} was taken before · {`C`, id} its id belongs to
--       another function · `U` unknown function · `N` no workers · {`O`, backlog, limit} overloaded · `R` came twice in this batch, ask again
local call, format, unpack, ARGV = redis.call, string.format, unpack, ARGV
local calls, requests = KEYS[1], KEYS[2]
-- Of all functions, one after the other: ids, what is written down under them already, and what is to be said about them.
local ids, records, replies, seen = {}, {}, {}, {}
-- What is written down for all functions at once, and the latest sequence that was handed out.
local lives, written, apart, pages, last = {}, 0, {}, {}, nil
local alone, no_id_twice = ARGV[3] ~= '1', ARGV[4] == '1'
local words = alone and 4 or 5
-- What calls have in common, and whether none of it has to be looked at.
local shapes, plain = {}, true

local function taken_before(line, id)
  local life = call('HGET', calls, id)
  -- In whichever of its streams it is.
  local of = life and string.match(life, '^' .. string.rep('[^\n]*\n', 19) .. '([^\n\t]*\t[^\n\t]*)')
  if of ~= string.match(line, '^[^\t]*\t[^\t]*') then return { 'C', id } end
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

-- The places of those that are accepted, nothing if all are; the others have their replies.
local function judge_all(f)
  local accepted = {}
  for place = 1, f.count do
    local id, shape = ids[f.before + place], shapes[tonumber(ARGV[f.first + place * words - words + 2])]
    local refused = judge(f, id, records[f.before + place], shape)
    replies[f.before + place] = refused or 'A'
    if not refused then
      seen[id] = true
      if shape.key ~= '' then seen[f.line .. '\n' .. shape.key] = true end
      accepted[#accepted + 1] = place
    end
  end
  return accepted
end

-- Reads what calls have in common, and says where that ends.
local function read_shapes(at, count)
  for i = 1, count do
    local fields = { 'timeout', ARGV[at + 6], 'timestamp', ARGV[2] }
    local item, added = ARGV[at + 4], tonumber(ARGV[at + 9])
    if item ~= '' then fields[5], fields[6] = 'inputItem', item end
    for j = 1, added do fields[#fields + 1] = ARGV[at + 9 + j] end
    shapes[i] = { key = ARGV[at], how = ARGV[at + 1], rest = '\n' .. ARGV[at + 2], due = ARGV[at + 3], channel = ARGV[at + 5],
      lead = ARGV[at + 7], mark = ARGV[at + 8], fields = fields }
    if ARGV[at] ~= '' or ARGV[at + 1] ~= '-' then plain = false end
    at = at + 10 + added
  end
  return at
end

-- A number costs more to write anew than to change in its last digit.
local DIGITS, tens = { '1', '2', '3', '4', '5', '6', '7', '8', '9', [0] = '0' }, nil
local function next_sequence()
  last = last + 1
  local digit = last % 10
  if digit == 0 or not tens then tens = last < 10 and '' or format('%d', (last - digit) / 10) end
  return tens .. DIGITS[digit]
end

-- Puts a function's accepted calls into its stream and its lists. What is written for all functions at once is gathered.
local function take(f)
  local listed, dues, order, soonest = {}, {}, {}, nil
  local accepted, before, first, stream, name, paged = f.accepted, f.before, f.first, f.stream, f.name, f.page ~= ''
  local page, number, shape = alone and format('%d', last + 1), nil, nil
  -- What the shape says, at hand: to look it up in a table for every call costs as much as a word of a command.
  local rest, channel, lead, due, key
  for i = 1, f.many do
    local place = accepted and accepted[i] or i
    local from = first + place * words - words
    local id, params, kept = ids[before + place], ARGV[from + 1], ARGV[from + 3]
    if ARGV[from + 2] ~= number then
      number = ARGV[from + 2]
      shape = shapes[tonumber(number)]
      rest, channel, lead, due, key = shape.rest .. f.line .. '\n', shape.channel, shape.lead, shape.due, shape.key
    end
    local sequence = alone and next_sequence() or ARGV[from + 4]
    local entry = call('XADD', stream, '*', 'callId', id, 'params', params,
      'responseChannel', channel ~= '' and channel or 'function:response:' .. id,
      'proto', sequence .. ':' .. kept .. shape.mark, 'functionName', name, unpack(shape.fields))
    -- One long string, and none on the way to it: Lua reads every byte of each to see whether it has it already.
    lives[written + 1] = id
    if kept == '0' then
      lives[written + 2] = '1\nQ\n' .. entry .. '\n' .. sequence .. rest .. '0\n'
      apart[#apart + 1] = id
      apart[#apart + 1] = lead .. params
    else
      lives[written + 2] = '1\nQ\n' .. entry .. '\n' .. sequence .. rest .. kept .. '\n' .. lead .. params
    end
    written = written + 2
    if paged then
      if accepted then listed[i] = id end
      if due ~= soonest and (not soonest or tonumber(due) < tonumber(soonest)) then soonest = due end
    else
      local a = i * 2 - 1
      dues[a], dues[a + 1] = due, id
      order[a], order[a + 1] = sequence, id
    end
    if key ~= '' then call('HSET', f.idempotency, key, id) end
  end
  if paged then
    pages[#pages + 1] = page
    pages[#pages + 1] = accepted and table.concat(listed, '\n') or f.page
    dues, order = { soonest, '\1' .. page }, { page, '\1' .. page }
  end
  call('ZADD', f.due, unpack(dues))
  call('ZADD', f.index, unpack(order))
  call('HINCRBY', f.counts, 'queued', f.many)
end

local functions, at = {}, read_shapes(7, tonumber(ARGV[6]))
for number = 1, tonumber(ARGV[5]) do
  local k = number * 7 - 3
  local f = { due = KEYS[k + 1], index = KEYS[k + 2], counts = KEYS[k + 3], idempotency = KEYS[k + 4], workers = KEYS[k + 6],
    stream = KEYS[k + 7], line = ARGV[at], name = ARGV[at + 1], page = ARGV[at + 2], before = #ids }
  local about = call('HMGET', KEYS[k + 5], 'definition', 'max_backlog')
  f.known, f.limit = about[1], tonumber(about[2] or '')
  -- Nothing but their ids is to be looked at.
  f.simple = f.known and not f.limit and no_id_twice and plain
  f.count, f.first = tonumber(ARGV[at + 3]), at + 4
  for i = 1, f.count do ids[f.before + i] = ARGV[f.first + i * words - words] end
  at = f.first + f.count * words
  functions[number] = f
end

records = call('HMGET', calls, unpack(ids))
local many = 0
for _, f in ipairs(functions) do
  for place = f.before + 1, f.simple and f.before + f.count or 0 do
    if records[place] then f.simple = false end
  end
  if not f.simple then f.accepted = judge_all(f) end
  f.many = f.accepted and #f.accepted or f.count
  many = many + f.many
end
if many == 0 then return replies end

last = alone and call('INCRBY', KEYS[3], many) - many
for _, f in ipairs(functions) do
  if f.many > 0 then take(f) end
end
call('HSET', calls, unpack(lives))
if #apart > 0 then call('HSET', requests, unpack(apart)) end
if #pages > 0 then call('HSET', KEYS[4], unpack(pages)) end
if many == #ids then return 'A' end
for place = 1, #ids do replies[place] = replies[place] or 'A' end
return replies
