-- permits/look.lua: all that is kept of one semaphore or read/write lock, for people. Changes nothing.
-- KEYS  1 P  2 Q  3 W  4 D  5 V  6 X      see scope.lua
-- reply {[lock id, lease end, ..], [lock id, row, ..], [waiter, arrival, ..], [waiter, alive until, ..], [waiter, units, ..],
--        {arrivals, highest fence, silent since}}
return {
  redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES'), redis.call('HGETALL', KEYS[2]), redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES'),
  redis.call('ZRANGE', KEYS[4], 0, -1, 'WITHSCORES'), redis.call('HGETALL', KEYS[5]), redis.call('HMGET', KEYS[6], 'n', 'h', 's'),
}
