-- registry/leave.lua: takes a worker that is gone out of a stream's consumer group, unless something is pending for it.
-- With the consumer its pending entries would go too, and nobody would find them again.
-- KEYS  stream  stream
-- ARGV  group   consumer group    worker  the consumer
-- reply {'left'} | {'pending'} | {'absent'}: there is no such stream or group
local stream, group, worker = KEYS[1], ARGV[1], ARGV[2]
local pending = redis.pcall('XPENDING', stream, group, '-', '+', 1, worker)
if pending.err then return {'absent'} end
if #pending > 0 then return {'pending'} end
redis.call('XGROUP', 'DELCONSUMER', stream, group, worker)
return {'left'}
