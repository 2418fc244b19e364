-- export: puts calls that wait in the queue into the stream, for legacy workers.
--
-- KEYS  1 calls  2 queue  3 exported  4 stream  5 legacy
-- ARGV  1 group  2 now, ms, then per call: id, start of the record as the host saw it, how many words the entry has, its words
-- gives {`T` or `X`, why}, or per call: its entry, or `` if the call has changed
local calls, queue, exported, stream = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local function export()
  local wrong = wrong_kind({ calls, 'hash', queue, 'zset', exported, 'zset', stream, 'stream', KEYS[5], 'hash' })
  if wrong then return wrong end
  ensure_group(stream, ARGV[1], KEYS[5], ARGV[2])
  local replies, at = {}, 3
  while at <= #ARGV do
    local id, expected, words = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
    local record = call('HGET', calls, id)
    local entry = ''
    if record and sub(record, 1, #expected) == expected and match(record, EXPORTED) == '' then
      entry = call('XADD', stream, '*', unpack(ARGV, at + 3, at + 2 + words))
      call('HSET', calls, id, placed(record, entry))
      call('ZREM', queue, id)
      call('ZADD', exported, match(record, SEQUENCE), id)
    end
    replies[#replies + 1] = entry
    at = at + 3 + words
  end
  return replies
end

return run_section(export)
