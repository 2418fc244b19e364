-- registry/gone.lua: takes a worker that fell silent off the list of heartbeats, unless it was heard meanwhile.
-- KEYS  heartbeats  sorted set
-- ARGV  worker      who          silent_since_ms  its latest heartbeat must not be later than this
-- reply {'gone'} | {'alive'} | {'unknown'}
local heartbeats, worker, silent_since = KEYS[1], ARGV[1], tonumber(ARGV[2])
local heartbeat = redis.call('ZSCORE', heartbeats, worker)
if not heartbeat then return {'unknown'} end
if tonumber(heartbeat) > silent_since then return {'alive'} end
redis.call('ZREM', heartbeats, worker)
return {'gone'}
