-- tend: looks at the stream of one function: makes its group again if it is gone, notes what is delivered and held, removes what is
-- acknowledged, and tells what there is to decide.
--
-- KEYS  1 stream  2 legacy  3 calls  4 exported  5 owed  6 queue
-- ARGV  1 group  2 now, ms  3 how many exported calls are looked at  4 `1` make the stream, too
-- gives {`T` or `X`, why}, or {last delivered entry, newest entry, {entry, consumer, idle ms, ..} pending, {entry, `since consumer`, ..} orphans,
--       {id, record, ..} of calls that legacy workers run, {id, record, `1` its entry is in the stream, ..} exported, how many are exported,
--       {id, ..} owed, {id, score} head of the queue, {consumer, ms since it last asked, ..}}
local PENDING_MAX, LOOKED_MAX, OWED_MAX = 1000, 200, 100
local stream, legacy, calls, exported, group = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1]

-- Removes entries that were delivered and are neither pending nor orphans. Another group on the stream may still want them.
local function trim(last, pending, orphans)
  local keep, floor = {}, nil
  for _, one in ipairs(pending) do keep[one[1]] = true end
  for entry in pairs(orphans) do keep[entry] = true end
  for entry in pairs(keep) do
    if not floor or is_after(floor, entry) then floor = entry end
  end
  if not floor or is_after(floor, last) then
    local ms, number = match(last, '^(%d+)-(%d+)$')
    call('XTRIM', stream, 'MINID', '=', ms .. '-' .. string.format('%.0f', tonumber(number) + 1))
    return
  end
  call('XTRIM', stream, 'MINID', '=', floor)
  if #pending == PENDING_MAX then return end
  local done = {}
  for _, entry in ipairs(call('XRANGE', stream, floor, last, 'COUNT', LOOKED_MAX)) do
    if not keep[entry[1]] then done[#done + 1] = entry[1] end
  end
  all('XDEL', stream, done)
end

-- The calls that legacy workers run. A note of a call that is not run any more is removed.
local function read_running(notes)
  local running = {}
  for id, entry in pairs(notes) do
    local record = call('HGET', calls, id)
    if record and sub(record, 2, 2) == 'R' and match(record, EXPORTED) == entry then
      running[#running + 1] = id
      running[#running + 1] = record
    else
      call('HDEL', legacy, 'r:' .. id)
    end
  end
  return running
end

local function tend()
  local wrong = wrong_kind({ stream, 'stream', legacy, 'hash', calls, 'hash', exported, 'zset', KEYS[5], 'set', KEYS[6], 'zset' })
  if wrong then return wrong end
  local last, newest, pending, consumers = '0-0', '0-0', {}, {}
  local has_stream = ARGV[4] == '1' or call('EXISTS', stream) == 1
  if has_stream then ensure_group(stream, group, legacy, ARGV[2]) end
  local orphans, noted, notes, fields = {}, {}, {}, call('HGETALL', legacy)
  for i = 1, #fields, 2 do
    local kind, name = match(fields[i], '^([or]):(.+)$')
    if kind == 'o' then
      orphans[name] = true
      noted[#noted + 1] = name
      noted[#noted + 1] = fields[i + 1]
    elseif kind == 'r' then
      notes[name] = fields[i + 1]
    end
  end
  if has_stream then
    local about, groups = about_group(stream, group)
    last = about['last-delivered-id']
    local found, held = call('XPENDING', stream, group, '-', '+', PENDING_MAX), {}
    for _, one in ipairs(found) do
      local n = #pending
      pending[n + 1], pending[n + 2], pending[n + 3] = one[1], one[2], one[3]
      held[#held + 1] = { one[1], one[2] }
    end
    if groups == 1 and last ~= '0-0' then trim(last, found, orphans) end
    local seen = call('HMGET', legacy, 'watermark', 'pending')
    local text = #held > 0 and cjson.encode(held)
    if seen[1] ~= last then call('HSET', legacy, 'watermark', last) end
    if text and seen[2] ~= text then call('HSET', legacy, 'pending', text) end
    if not text and seen[2] then call('HDEL', legacy, 'pending') end
    local newest_entry = call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
    if newest_entry then newest = newest_entry[1] end
    if #found > 0 or next(orphans) then
      for _, info in ipairs(call('XINFO', 'CONSUMERS', stream, group)) do
        local about = {}
        for i = 1, #info, 2 do about[info[i]] = info[i + 1] end
        local n = #consumers
        consumers[n + 1], consumers[n + 2] = about.name, about.idle
      end
    end
  end
  local waiting, ids = {}, call('ZRANGE', exported, 0, tonumber(ARGV[3]) - 1)
  if #ids > 0 then
    for i, record in ipairs(call('HMGET', calls, unpack(ids))) do
      local entry = record and match(record, EXPORTED)
      if not entry then
        call('ZREM', exported, ids[i])
      else
        local n = #waiting
        waiting[n + 1], waiting[n + 2] = ids[i], record
        waiting[n + 3] = entry ~= '' and call('EXISTS', stream) == 1 and #call('XRANGE', stream, entry, entry) > 0 and '1' or ''
      end
    end
  end
  return { last, newest, pending, noted, read_running(notes), waiting, call('ZCARD', exported), call('SRANDMEMBER', KEYS[5], OWED_MAX),
    call('ZRANGE', KEYS[6], 0, 0, 'WITHSCORES'), consumers }
end

return run_section(tend)
