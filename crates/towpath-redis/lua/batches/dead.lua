-- batches/dead.lua = BatchStore::dead_letter_add, _replay and _clear, behind place.lua. Rust twin: towpath-core batch/dead_letter.rs
-- The list has the seed's shape, one JSON text per entry, so an entry is named by its text.
-- ARGV  6 add | replay | look | clear  7 the entry, byte for byte (add, replay)
--       add:    8 source id, '' = none  9 how long that counts, ms
--       replay: 8 batch id  9 bk  10 first  11 last  12 reason          look: 8 batch id
-- reply 'added' | 'duplicate' | 'replayed' | 'in_flight' | 'gone' | 'free' (look: no batch of this id is in flight) | a number: so many are gone
local verb, entry = ARGV[6], ARGV[7]
if verb == 'clear' then
  local before = redis.call('LLEN', DLQ)
  redis.call('DEL', DLQ)
  return before
elseif verb == 'add' then
  local mark = ARGV[8] ~= '' and own .. 's:' .. ARGV[8]
  if mark and number(redis.call('GET', mark)) > now then return 'duplicate' end
  redis.call('RPUSH', DLQ, entry)
  if mark then redis.call('SET', mark, int(now + tonumber(ARGV[9])), 'PX', ARGV[5] ~= '' and ARGV[5] or ARGV[9]) end
  return 'added'
end
local CH = own .. 'ch:' .. ARGV[8]
if redis.call('EXISTS', CH) == 1 then return 'in_flight' end
if verb == 'look' then return 'free' end
redis.call('ZCARD', FLY)
if redis.call('LREM', DLQ, 1, entry) == 0 then return 'gone' end
redis.call('HSET', CH, 'v', 1, 'bk', ARGV[9], 'tok', '', 'att', 0, 'f', ARGV[10], 'l', ARGV[11], 'r', ARGV[12], 'p', entry)
redis.call('ZADD', FLY, int(now), ARGV[8])
wake(now)
return 'replayed'
