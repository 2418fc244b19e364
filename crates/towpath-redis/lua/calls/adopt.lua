-- adopt: writes down calls that an old peer put into the stream, so that from here on they are calls like all others.
--
-- KEYS  1 calls  2 requests  3 due  4 index  5 counts  6 sequence  (only when one server has all keys)
-- ARGV  1 `1` in a Cluster   2 inline
--       then per call: id, its place in the stream, sequence (Cluster only), rest of its life, due, request; what is longer than
--       `inline` bytes stands apart
-- gives how many were new
local cluster, new = ARGV[1] == '1', 0
for at = 3, #ARGV, 6 do
  local id, place, sequence, rest, due, request = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5]
  if redis.call('HEXISTS', KEYS[1], id) == 0 then
    if not cluster then sequence = redis.call('INCR', KEYS[6]) end
    local kept = #request <= tonumber(ARGV[2]) and #request or 0
    redis.call('HSET', KEYS[1], id, '1\nQ\n' .. place .. '\n' .. sequence .. '\n' .. rest .. '\n' .. kept .. '\n' .. (kept > 0 and request or ''))
    if kept == 0 then redis.call('HSET', KEYS[2], id, request) end
    redis.call('ZADD', KEYS[3], due, id)
    redis.call('ZADD', KEYS[4], sequence, id)
    redis.call('HINCRBY', KEYS[5], 'queued', 1)
    new = new + 1
  end
end
return new
