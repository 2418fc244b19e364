-- group: the consumer group of a stream. Legacy workers make it at the end of the stream, and destroy it when they leave.
--
-- The hash `legacy` of a function remembers what a new group does not know:
--   watermark   the last entry that was delivered
--   pending     JSON: {{entry, consumer}, ..}, what consumers held when the stream was last looked at
--   o:<entry>   `since consumer`: an orphan, an entry whose group was destroyed while it was held, or made again behind it (no consumer)
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

local MARK, ORPHANS_MAX = 'towpath-seen', 1000

-- An entry's record field, and the sequence of its call.
local EXPORTED, SEQUENCE = '^[^\n]*\n[^\n]*\t([^\t\n]*)\n', '^[^\n]*\n(%d+)\t'
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

-- Makes the group if it is missing, from the watermark. Entries that were held, or that a group of another peer begins behind, become orphans.
local function ensure_group(stream, group, legacy, now)
  local planted = redis.pcall('XGROUP', 'CREATECONSUMER', stream, group, MARK)
  if planted == 0 then return end
  local watermark, orphans = call('HGET', legacy, 'watermark'), decoded(call('HGET', legacy, 'pending'))
  if planted == 1 then
    if not watermark then return end
    local last = about_group(stream, group)['last-delivered-id']
    if is_after(watermark, last) then
      call('XGROUP', 'SETID', stream, group, watermark)
    else
      local held = {}
      for _, one in ipairs(call('XPENDING', stream, group, '-', '+', ORPHANS_MAX)) do held[one[1]] = true end
      local missed = call('XRANGE', stream, '(' .. watermark, last, 'COUNT', ORPHANS_MAX)
      for _, entry in ipairs(missed) do
        if not held[entry[1]] then orphans[#orphans + 1] = { entry[1], '' } end
      end
      -- More than that are delivered by the group itself.
      if #missed == ORPHANS_MAX then call('XGROUP', 'SETID', stream, group, missed[ORPHANS_MAX][1]) end
    end
  else
    local made = redis.pcall('XGROUP', 'CREATE', stream, group, watermark or '0', 'MKSTREAM')
    if type(made) == 'table' and made.err then error(made) end
    call('XGROUP', 'CREATECONSUMER', stream, group, MARK)
  end
  for _, orphan in ipairs(orphans) do call('HSETNX', legacy, 'o:' .. orphan[1], now .. ' ' .. orphan[2]) end
  if #orphans > 0 then call('HDEL', legacy, 'pending') end
end
