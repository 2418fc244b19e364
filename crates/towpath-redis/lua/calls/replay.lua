-- replay: settles a dead letter and submits its request again under a new id, in one move.
--
-- KEYS  1 calls  2 requests  3 outcomes  4 due  5 index  6 counts  7 idempotency  8 stream  9 dead
--       10 where  11 sequence  (both only when one server has all keys)
-- ARGV  1 the function, as it stands in `where`  2 `1` in a Cluster  3 id of the dead letter  4 version the host saw  5 its new life
--       6 its new tail, if that stands apart  7 its new due  8 new id  9 sequence (Cluster only)  10 rest of the new life  11 its due
--       12 its key (`` none)  13 the last so many bytes of the dead letter's record stay: what was asked
--       then the fields of its entry
-- gives 1 done, 0 somebody was faster, -1 the new id is taken
local cluster = ARGV[2] == '1'
local dead, new = ARGV[3], ARGV[8]
if redis.call('HEXISTS', KEYS[1], new) == 1 or (not cluster and redis.call('HEXISTS', KEYS[10], new) == 1) then return -1 end
local old = redis.call('HGET', KEYS[1], dead)
if not old or string.match(old, '^(%d+)\nZ\n') ~= ARGV[4] then return 0 end
local fields = {}
for at = 14, #ARGV do fields[#fields + 1] = ARGV[at] end
local entry = redis.call('XADD', KEYS[8], '*', unpack(fields))
local sequence = ARGV[9]
if not cluster then
  sequence = redis.call('INCR', KEYS[11])
  redis.call('HSET', KEYS[10], new, ARGV[1])
end
local kept = tonumber(ARGV[13])
local asked = kept > 0 and string.sub(old, -kept) or ''
redis.call('HSET', KEYS[1], dead, ARGV[5] .. asked,
  new, '1\nQ\n' .. entry .. '\n' .. sequence .. '\n' .. ARGV[10] .. '\n' .. kept .. '\n' .. asked)
if kept == 0 then redis.call('HSET', KEYS[2], new, redis.call('HGET', KEYS[2], dead) or '') end
if ARGV[6] ~= '' then redis.call('HSET', KEYS[3], dead, ARGV[6]) end
redis.call('ZADD', KEYS[4], ARGV[7], dead, ARGV[11], new)
redis.call('ZADD', KEYS[5], sequence, new)
redis.call('ZREM', KEYS[9], dead)
redis.call('HINCRBY', KEYS[6], 'dead', -1)
redis.call('HINCRBY', KEYS[6], 'queued', 1)
if ARGV[12] ~= '' then redis.call('HSET', KEYS[7], ARGV[12], new) end
return 1
