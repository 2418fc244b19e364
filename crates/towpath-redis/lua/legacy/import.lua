-- import: makes calls of entries of the stream, and removes the entries.
--
-- KEYS  1 calls  2 queue  3 deadlines  4 buckets  5 exported  6 stream
-- ARGV  1 now, ms  2 start of the names of buckets  3 group  4 the channel of the function's workers
--       then per entry: entry, what must be true (`` nothing, `P` it is pending, `S` it is in the stream and not pending), call id (`` it is not a call),
--       `1` Towpath has exported it, sequence, deadline, record, request if that stands beside the record
-- gives {`T` or `X`, why}, or per entry: `N` a new call · `B` back in the queue · `D` the call is known, or over · `K` a legacy worker runs it,
--       and the entry stays · `G` what must be true is not, and nothing is done · `I` it is not a call
local WORDS = 8
local calls, queue, exported, stream, group = KEYS[1], KEYS[2], KEYS[5], KEYS[6], ARGV[3]

local function import()
  local wrong = wrong_kind({ calls, 'hash', queue, 'zset', KEYS[3], 'zset', KEYS[4], 'zset', exported, 'zset', stream, 'stream' })
  if wrong then return wrong end
  local replies, buckets = {}, call('ZRANGE', KEYS[4], 0, -1)
  local was_empty = call('ZCARD', queue) == 0
  local came = false

  -- An entry can be large: whether it is in the stream is told by its removal, not by a read.
  local function is_there(entry, how)
    if how == '' then return true end
    local is_pending = #call('XPENDING', stream, group, entry, entry, 1) > 0
    if how == 'P' then return is_pending end
    return not is_pending and call('XDEL', stream, entry) == 1
  end
  local function judge(at)
    local entry, id = ARGV[at], ARGV[at + 2]
    if not is_there(entry, ARGV[at + 1]) then return 'G' end
    if id == '' then return 'I' end
    local record = call('HGET', calls, id)
    if not record then
      if ARGV[at + 3] == '1' or find_ended(buckets, ARGV[2], { id }, tonumber(ARGV[1]))[id] then return 'D' end
      return 'N'
    end
    if match(record, EXPORTED) ~= entry then return 'D' end
    return sub(record, 2, 2) == 'Q' and 'B' or 'K', record
  end

  for at = 5, #ARGV, WORDS do
    local entry, id = ARGV[at], ARGV[at + 2]
    local reply, record = judge(at)
    replies[#replies + 1] = reply
    if reply == 'N' then
      call('HSET', calls, id, ARGV[at + 6])
      if ARGV[at + 7] ~= '' then call('HSET', calls, REQUEST .. id, ARGV[at + 7]) end
      call('ZADD', queue, ARGV[at + 4], id)
      call('ZADD', KEYS[3], ARGV[at + 5], id)
    elseif reply == 'B' then
      call('HSET', calls, id, placed(record, ''))
      call('ZREM', exported, id)
      call('ZADD', queue, match(record, SEQUENCE), id)
    end
    came = came or reply == 'N' or reply == 'B'
    -- `G`: a group that was made again has nothing pending, and the entry is needed.
    if reply ~= 'K' and reply ~= 'G' then
      redis.pcall('XACK', stream, group, entry)
      call('XDEL', stream, entry)
    end
  end
  if came and was_empty then redis.pcall('PUBLISH', ARGV[4], '') end
  return replies
end

return run_section(import)
