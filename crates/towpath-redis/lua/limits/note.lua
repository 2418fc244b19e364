-- limits/note.lua: writes down which rules have counted something, for lists. Rust twin: towpath-core limit/noted.rs
-- Forgets two that are over for every one that comes. Beyond so many no new ones are written down: a list helps nobody then.
-- KEYS  index  zset  rules by their bytes, all with score 0      over  zset  the same by the ms after which nothing of them is in use
-- ARGV  now_ms      most  rules that are kept      per rule: its text, keep_until_ms
-- reply how many are kept
local index, over = KEYS[1], KEYS[2]
local rules = (#ARGV - 2) / 2
local swept = redis.call('ZRANGEBYSCORE', over, '-inf', '(' .. ARGV[1], 'LIMIT', 0, rules * 2)
for i = 1, #swept do
  redis.call('ZREM', index, swept[i])
  redis.call('ZREM', over, swept[i])
end
for i = 3, #ARGV, 2 do
  local known = redis.call('ZSCORE', over, ARGV[i])
  if known or redis.call('ZCARD', index) < tonumber(ARGV[2]) then
    redis.call('ZADD', index, 0, ARGV[i])
    if not known or tonumber(known) < tonumber(ARGV[i + 1]) then redis.call('ZADD', over, ARGV[i + 1], ARGV[i]) end
  end
end
return redis.call('ZCARD', index)
