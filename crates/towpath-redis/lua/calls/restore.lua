-- restore: puts lives back that were written beside a `move` which then did nothing.
--
-- KEYS  1 calls  2 what `move` kept; mostly nothing
-- gives how many it put back
local kept = redis.call('HGETALL', KEYS[2])
for i = 1, #kept, 2 do
  if kept[i + 1] == '' then
    redis.call('HDEL', KEYS[1], kept[i])
  else
    redis.call('HSET', KEYS[1], kept[i], kept[i + 1])
  end
end
if #kept > 0 then redis.call('DEL', KEYS[2]) end
return #kept / 2
