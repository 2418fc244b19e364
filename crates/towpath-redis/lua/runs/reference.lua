-- reference: reserves a reference for a run, confirms it, or lets it expire.
-- KEYS  1 the hash of the reference
-- ARGV  1 the run that it must lead to (`` none), 2 `reserve`, `confirm` or `expire`, 3 how long it lives in ms
--       to reserve: 4 the new run, 5 its input hash, 6 the start
-- gives 1, or 0 if it leads to another run; nothing was done then
if (redis.call('HGET', KEYS[1], 'run') or '') ~= ARGV[1] then return 0 end
if ARGV[2] == 'reserve' then
  redis.call('HSET', KEYS[1], 'run', ARGV[4], 'hash', ARGV[5], 'request', ARGV[6])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
elseif ARGV[2] == 'confirm' then
  -- The run may have closed meanwhile: then the reference has its end already.
  if redis.call('HDEL', KEYS[1], 'request') == 1 then redis.call('PERSIST', KEYS[1]) end
else
  redis.call('HDEL', KEYS[1], 'request')
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return 1
