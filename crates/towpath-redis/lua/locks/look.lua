-- locks/look.lua: all that is kept of one lock, for people. Changes nothing.
-- KEYS  1 C  2 M  3 S  4 W  5 D      see scope.lua
-- reply {counter, identity, record, [waiter, arrival, ..], [waiter, alive until, ..]}
return {
  redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2]), redis.call('GET', KEYS[3]), redis.call('ZRANGE', KEYS[4], 0, -1, 'WITHSCORES'),
  redis.call('ZRANGE', KEYS[5], 0, -1, 'WITHSCORES'),
}
