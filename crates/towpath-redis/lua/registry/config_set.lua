-- registry/config_set.lua = RegistryStore::set_config where both keys are on one server.
-- Replaces the shared configuration, if its version still is the one expected. What an old peer has set since counts as a version too.
-- KEYS  value       string   function:global_config      config  hash   version, updated_at, and `value`: a copy of what was last seen
-- ARGV  now_ms      expected  a version, '' = any        new     the new value
-- reply {'set', version} | {'refused'}
local value_key, config = KEYS[1], KEYS[2]
local now, expected, new = ARGV[1], ARGV[2], ARGV[3]
local version = tonumber(redis.call('HGET', config, 'version') or 0)
if redis.call('GET', value_key) ~= redis.call('HGET', config, 'value') then version = version + 1 end
if expected ~= '' and tonumber(expected) ~= version then return {'refused'} end
redis.call('SET', value_key, new)
redis.call('HSET', config, 'version', string.format('%.0f', version + 1), 'updated_at', now, 'value', new)
return {'set', version + 1}
