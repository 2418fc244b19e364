-- tend: looks at the stream of one function: makes its group again if it is gone, notes what is delivered and held, removes what is
-- acknowledged, and tells what there is to decide. It reads no entry: entries can be large.
--
-- KEYS  1 stream  2 legacy  3 calls  4 exported  5 owed  6 queue
-- ARGV  1 group  2 now, ms  3 how many exported calls are looked at  4 `1` make the stream, too  5 where the look at notes goes on (HSCAN)
-- gives {`T` or `X`, why}, or {last delivered entry, `1` entries may be unread, number of entries, {entry, consumer, idle ms, ..} pending,
--       the entry behind which more may be pending or ``, ranges of missed entries or ``, {id, record, ..} some of the calls that legacy
--       workers run, where the next look at notes goes on, {id, record, ..} exported, how many are exported, {id, ..} owed,
--       {id, score} head of the queue}
local NOTES_MAX, OWED_MAX = 100, 100
local stream, legacy, calls, exported, group = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1]

local function next_of(entry)
  local ms, number = match(entry, '^(%d+)-(%d+)$')
  return ms .. '-' .. string.format('%.0f', tonumber(number) + 1)
end

-- Removes entries that were held and are acknowledged, and those before all that are held or missed. Another group may still want them. Those that
-- were delivered and acknowledged between two looks stay until the entries before them are acknowledged.
local function trim(last, found, horizon, seen, missed)
  local held, done, floor = {}, {}, next_of(last)
  for _, one in ipairs(found) do held[one[1]] = true end
  for _, one in ipairs(decoded(seen)) do
    if not held[one[1]] and (horizon == '' or is_after(horizon, one[1])) then done[#done + 1] = one[1] end
  end
  all('XDEL', stream, done)
  if found[1] and is_after(floor, found[1][1]) then floor = found[1][1] end
  for _, range in ipairs(decoded(missed)) do
    if is_after(range[3], range[2]) and is_after(floor, range[2]) then floor = range[2] end
  end
  -- Whole nodes first: of small entries a node has up to a hundred. Then what is left of one node. To free large entries takes time, so that few
  -- go at once, unless there are very many.
  local at_once = math.max(25, math.min(1000, math.floor(call('XLEN', stream) / 10)))
  for _, limit in ipairs({ at_once, 100 }) do
    if call('XTRIM', stream, 'MINID', '~', floor, 'LIMIT', limit) > 0 then return end
  end
  call('XTRIM', stream, 'MINID', '=', floor)
end

-- Some of the calls that legacy workers run. A note of a call that is not run any more is removed.
local function read_running()
  local scanned, running = call('HSCAN', legacy, ARGV[5], 'MATCH', 'r:*', 'COUNT', NOTES_MAX), {}
  for i = 1, #scanned[2], 2 do
    local id, entry = sub(scanned[2][i], 3), scanned[2][i + 1]
    local record = call('HGET', calls, id)
    if record and sub(record, 2, 2) == 'R' and match(record, EXPORTED) == entry then
      running[#running + 1] = id
      running[#running + 1] = record
    else
      call('HDEL', legacy, scanned[2][i])
    end
  end
  return running, scanned[1]
end

local function read_exported()
  local waiting, ids = {}, call('ZRANGE', exported, 0, tonumber(ARGV[3]) - 1)
  if #ids == 0 then return waiting end
  for i, record in ipairs(call('HMGET', calls, unpack(ids))) do
    if not record then
      call('ZREM', exported, ids[i])
    else
      waiting[#waiting + 1] = ids[i]
      waiting[#waiting + 1] = record
    end
  end
  return waiting
end

local function tend()
  local wrong = wrong_kind({ stream, 'stream', legacy, 'hash', calls, 'hash', exported, 'zset', KEYS[5], 'set', KEYS[6], 'zset' })
  if wrong then return wrong end
  local last, unread, length, pending, horizon, missed = '0-0', '', 0, {}, '', ''
  if ARGV[4] == '1' or call('EXISTS', stream) == 1 then
    ensure_group(stream, group, legacy, ARGV[2])
    local about, groups = about_group(stream, group)
    last = about['last-delivered-id']
    local found = call('XPENDING', stream, group, '-', '+', PENDING_MAX)
    for _, one in ipairs(found) do
      local n = #pending
      pending[n + 1], pending[n + 2], pending[n + 3] = one[1], one[2], one[3]
    end
    if #found == PENDING_MAX then horizon = found[PENDING_MAX][1] end
    local seen = call('HMGET', legacy, 'watermark', 'pending', 'missed')
    missed = seen[3] or ''
    if groups == 1 and call('XLEN', stream) > 0 then trim(last, found, horizon, seen[2], seen[3]) end
    if seen[1] ~= last then call('HSET', legacy, 'watermark', last) end
    note_held(legacy, found, seen[2])
    length = call('XLEN', stream)
    -- The server does not always know how many are unread: it may say none, or nothing.
    if length > 0 and (about.lag ~= 0 or length > #found) then unread = '1' end
  end
  local running, cursor = read_running()
  return { last, unread, length, pending, horizon, missed, running, cursor, read_exported(), call('ZCARD', exported),
    call('SRANDMEMBER', KEYS[5], OWED_MAX), call('ZRANGE', KEYS[6], 0, 0, 'WITHSCORES') }
end

return run_section(tend)
