-- group: the consumer group of a stream. Legacy workers make it at the end of the stream, and destroy it when they leave.
--
-- The hash `legacy` of a function remembers what a new group does not know:
--   watermark   the last entry that was delivered
--   pending     JSON: {{entry, consumer}, ..}, the entries that consumers held when the stream was last looked at
--   missed      JSON: {{from, next, to}, ..}, ranges of entries that a group made later begins behind: those after `from`, up to `to`. Entries
--               after `next` still have to be imported
--   r:<call>    the entry of a call that a legacy worker runs
-- A consumer that never reads marks a group that was seen: in a group that another peer has made again it is missing.

-- Says which of these keys holds something of another kind: nothing is written then. Legacy peers can put anything under the seeds' names.
local function wrong_kind(keys)
  for i = 1, #keys, 2 do
    local kind = call('TYPE', keys[i]).ok
    if kind ~= keys[i + 1] and kind ~= 'none' then return { 'T', keys[i] .. ' is a ' .. kind .. ' and should be a ' .. keys[i + 1] } end
  end
  has_written = true
end

local MARK, PENDING_MAX, MISSED_MAX = 'towpath-seen', 400, 32
-- A group that Towpath makes begins this long ago at most. Legacy peers never remove the entries of finished calls, and legacy workers look at no
-- deadline: from the start of the stream, or from a watermark of last week, they would run all of them again. Legacy callers wait for five
-- minutes by default. Older entries are noted as missed, so that those are imported whose own timeout still runs; none is older than a day.
local DELIVERED_WITHIN_MS, LOOKED_AT_WITHIN_MS = 300000, 86400000

-- An entry's record field, and the sequence of its call.
local EXPORTED, SEQUENCE = '^[^\n]*\n[^\n]*\t([^\t\n]*)\n', '^[^\t]*\t%d+\t(%d+)\t'
local WAITING_AT = '^(' .. FORMAT .. 'Q\t)(%d+)(\t[^\n]*\n[^\n]*\t)[^\t\n]*(\n.*)$'

-- The record of a waiting call with another place: an entry, or `` for the queue. Its version rises.
local function placed(record, entry)
  local state, version, middle, rest = match(record, WAITING_AT)
  return state .. string.format('%.0f', tonumber(version) + 1) .. middle .. entry .. rest
end

local function is_after(one, other)
  local one_ms, one_number = match(one, '^(%d+)-(%d+)$')
  local other_ms, other_number = match(other, '^(%d+)-(%d+)$')
  one_ms, other_ms = tonumber(one_ms), tonumber(other_ms)
  return one_ms > other_ms or one_ms == other_ms and tonumber(one_number) > tonumber(other_number)
end

local function decoded(text)
  local fine, list = pcall(cjson.decode, text or '[]')
  return fine and type(list) == 'table' and list or {}
end

-- What the server says about the group, and how many groups the stream has.
local function about_group(stream, group)
  local groups, found = call('XINFO', 'GROUPS', stream), nil
  for _, info in ipairs(groups) do
    local about = {}
    for i = 1, #info, 2 do about[info[i]] = info[i + 1] end
    if about.name == group then found = about end
  end
  return found, #groups
end

-- The last entry that the stream ever had. Asked only if the group does not tell it: this reads two whole entries.
local function last_generated(stream)
  local info = call('XINFO', 'STREAM', stream)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then return info[i + 1] end
  end
end

-- Notes which consumers hold which entries, of these that are pending. `before`: the note that is there.
local function note_held(legacy, found, before)
  local held = {}
  for i, one in ipairs(found) do held[i] = { one[1], one[2] } end
  local text = #held > 0 and cjson.encode(held)
  if text and before ~= text then call('HSET', legacy, 'pending', text) end
  if not text and before then call('HDEL', legacy, 'pending') end
end

-- Gives entries back to the consumers that held them in the group that was destroyed, so that they can acknowledge them.
local function hold_again(stream, group, text)
  local held, of = {}, {}
  for _, one in ipairs(call('XPENDING', stream, group, '-', '+', PENDING_MAX)) do held[one[1]] = true end
  for _, one in ipairs(decoded(text)) do
    local entry, consumer = one[1], one[2]
    if not held[entry] then
      of[consumer] = of[consumer] or { group, consumer, 0 }
      table.insert(of[consumer], entry)
    end
  end
  for _, words in pairs(of) do
    table.insert(words, 'FORCE')
    table.insert(words, 'JUSTID')
    call('XCLAIM', stream, unpack(words))
  end
end

local function note_missed(legacy, text, from, to, earliest)
  local ranges, first = decoded(text), is_after(earliest, from) and earliest or from
  ranges[#ranges + 1] = { from, is_after(first, to) and to or first, to }
  if #ranges > MISSED_MAX then table.remove(ranges, 1) end
  call('HSET', legacy, 'missed', cjson.encode(ranges))
end

-- Makes the group if it is missing, and learns to know one that another peer has made. A group is never set backwards: a worker that reads
-- from it would be given entries that were finished.
local function ensure_group(stream, group, legacy, now)
  local planted = redis.pcall('XGROUP', 'CREATECONSUMER', stream, group, MARK)
  if planted == 0 then return end
  local is_made = planted ~= 1
  if is_made then
    local made = redis.pcall('XGROUP', 'CREATE', stream, group, '$', 'MKSTREAM')
    if type(made) == 'table' and made.err then error(made) end
    call('XGROUP', 'CREATECONSUMER', stream, group, MARK)
  end
  local last = about_group(stream, group)['last-delivered-id']
  local known = call('HMGET', legacy, 'watermark', 'pending', 'missed')
  local watermark, pending, missed = known[1], known[2], known[3]
  -- A stream that was deleted, and made again with smaller entries: what is known was about the first one.
  if watermark and is_after(watermark, last) and (is_made or is_after(watermark, last_generated(stream))) then
    call('HDEL', legacy, 'watermark', 'pending', 'missed')
    watermark, pending, missed = nil, nil, nil
  end
  local function ago(ms) return string.format('%.0f-0', math.max(0, tonumber(now) - ms)) end
  local oldest, earliest = ago(DELIVERED_WITHIN_MS), ago(LOOKED_AT_WITHIN_MS)
  local start = last
  if is_made and is_after(last, oldest) then start = oldest end
  if watermark and is_after(watermark, start) then start = watermark end
  if start ~= last then call('XGROUP', 'SETID', stream, group, start) end
  if watermark then
    if is_after(start, watermark) then note_missed(legacy, missed, watermark, start, earliest) end
    hold_again(stream, group, pending)
  elseif is_made and is_after(start, earliest) then
    note_missed(legacy, missed, earliest, start, earliest)
  end
  call('HSET', legacy, 'watermark', start)
  note_held(legacy, call('XPENDING', stream, group, '-', '+', PENDING_MAX), pending)
end
