-- registry/config_note.lua: notes the value of the seeds' key as the next version, and in a Cluster a new part of Towpath's own.
-- KEYS  config      hash   version, updated_at, `ours`: Towpath's part, `value`: a copy of the seeds' key as it was last seen
-- ARGV  now_ms      version  the one that was read beside the value      present  '1' | '0': the key is gone      value
--       written     '1' | '0': Towpath's part is written      ours
-- reply {'noted', version, updated_at} | {'changed'}: another process was faster, look again
local config = KEYS[1]
local now, version, present, value = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if (redis.call('HGET', config, 'version') or '0') ~= version then return {'changed'} end
local next_version = string.format('%.0f', tonumber(version) + 1)
redis.call('HSET', config, 'version', next_version, 'updated_at', now)
if present == '1' then
  redis.call('HSET', config, 'value', value)
else
  redis.call('HDEL', config, 'value')
end
if ARGV[5] == '1' then redis.call('HSET', config, 'ours', ARGV[6]) end
return {'noted', next_version, now}
