-- replay: settles a dead letter and submits its request again under a new id, in one move.
--
-- KEYS  1 calls  2 requests  3 outcomes  4 due  5 index  6 counts  7 idempotency  8 stream  9 dead
--       10 sequence  (only when one server has all keys)
-- ARGV  1 `1` in a Cluster  2 id of the dead letter  3 version the host saw  4 its new life  5 its new tail, if that stands apart
--       6 its new due  7 new id  8 sequence (Cluster only)  9 rest of the new life  10 its due  11 its key (`` none)
--       12 the last so many bytes of the dead letter's record stay: what was asked
--       then the fields of its entry
-- gives 1 done, 0 somebody was faster, -1 the new id is taken
local cluster = ARGV[1] == '1'
local dead, new = ARGV[2], ARGV[7]
if redis.call('HEXISTS', KEYS[1], new) == 1 then return -1 end
local old = redis.call('HGET', KEYS[1], dead)
if not old or string.match(old, '^(%d+)\nZ\n') ~= ARGV[3] then return 0 end
local fields = {}
for at = 13, #ARGV do fields[#fields + 1] = ARGV[at] end
local entry = redis.call('XADD', KEYS[8], '*', unpack(fields))
local sequence = ARGV[8]
if not cluster then sequence = redis.call('INCR', KEYS[10]) end
local kept = tonumber(ARGV[12])
local asked = kept > 0 and string.sub(old, -kept) or ''
redis.call('HSET', KEYS[1], dead, ARGV[4] .. asked,
  new, '1\nQ\n' .. entry .. '\n' .. sequence .. '\n' .. ARGV[9] .. '\n' .. kept .. '\n' .. asked)
if kept == 0 then redis.call('HSET', KEYS[2], new, redis.call('HGET', KEYS[2], dead) or '') end
if ARGV[5] ~= '' then redis.call('HSET', KEYS[3], dead, ARGV[5]) end
redis.call('ZADD', KEYS[4], ARGV[6], dead, ARGV[10], new)
redis.call('ZADD', KEYS[5], sequence, new)
redis.call('ZREM', KEYS[9], dead)
redis.call('HINCRBY', KEYS[6], 'dead', -1)
redis.call('HINCRBY', KEYS[6], 'queued', 1)
if ARGV[11] ~= '' then redis.call('HSET', KEYS[7], ARGV[11], new) end
return 1
