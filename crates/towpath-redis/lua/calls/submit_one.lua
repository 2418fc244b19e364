-- submit_one: takes one call that asks for nothing special, when there is no other to go with it. What `submit` does, in fewer steps.
--
-- KEYS  as for `submit`, with one function; not in a Cluster
-- ARGV  1 timestamp: now in ms  2 the function's name  3 rest of the life  4 due  5 channel  6 timeout  7 lead  8 mark  9 id  10 params
--       11 how many bytes the lead and the params have
-- gives `A` accepted · `S` it is not that simple: ask `submit`
local call = redis.call
local id, params, kept = ARGV[9], ARGV[10], ARGV[11]
local about = call('HMGET', KEYS[9], 'definition', 'max_backlog')
if not about[1] or about[2] or call('HEXISTS', KEYS[1], id) == 1 then return 'S' end
local sequence = string.format('%d', call('INCR', KEYS[3]))
local entry = call('XADD', KEYS[11], '*', 'callId', id, 'params', params, 'responseChannel', ARGV[5],
  'proto', sequence .. ':' .. kept .. ARGV[8], 'functionName', ARGV[2], 'timeout', ARGV[6], 'timestamp', ARGV[1])
call('HSET', KEYS[1], id, '1\nQ\n' .. entry .. '\n' .. sequence .. '\n' .. ARGV[3] .. '\n' .. kept .. '\n' .. ARGV[7] .. params)
call('ZADD', KEYS[5], ARGV[4], id)
call('ZADD', KEYS[6], sequence, id)
call('HINCRBY', KEYS[7], 'queued', 1)
return 'A'
