-- batches/put.lua = BatchStore::put_batcher.
-- KEYS  1 hash  towpath:batchers   name -> version, space, updated at, space, settings as JSON; '' -> the latest version of any
-- ARGV  1 now_ms  2 name  3 settings
-- reply {version, 1 = nothing was kept of this batcher before}
local version = redis.call('HINCRBY', KEYS[1], '', 1)
return {version, redis.call('HSET', KEYS[1], ARGV[2], version .. ' ' .. ARGV[1] .. ' ' .. ARGV[3])}
