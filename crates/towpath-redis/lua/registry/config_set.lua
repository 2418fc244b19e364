-- registry/config_set.lua = RegistryStore::set_config where both keys are on one server.
-- Replaces Towpath's part of the shared configuration, if its version still is the one expected. What a legacy peer has set since counts as a
-- version, too.
-- KEYS  seeds       string   function:global_config      config  hash   version, updated_at, `ours`: Towpath's part, `value`: a copy of `seeds` as it
--                                                                was last seen
-- ARGV  now_ms      expected  a version, '' = any        known   '1' | '0': `seeds` was there when the host looked      before  its value then
--       written     '1' | '0': `seeds` is written      after   its new value      ours
-- reply {'set', version} | {'refused'} | {'changed'}: a legacy peer was faster, look again
local seeds, config = KEYS[1], KEYS[2]
local now, expected, known, before, written, after, ours = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
-- A key of another type counts as absent. The host does not ask to replace it.
local value = redis.pcall('GET', seeds)
if type(value) == 'table' then
  if written == '1' then return {'changed'} end
  value = false
end
if value ~= (known == '1' and before) then return {'changed'} end
local version = tonumber(redis.call('HGET', config, 'version') or 0)
if value ~= redis.call('HGET', config, 'value') then version = version + 1 end
if expected ~= '' and tonumber(expected) ~= version then return {'refused'} end
if written == '1' then
  redis.call('SET', seeds, after)
  value = after
end
redis.call('HSET', config, 'version', string.format('%.0f', version + 1), 'updated_at', now, 'ours', ours)
if value then
  redis.call('HSET', config, 'value', value)
else
  redis.call('HDEL', config, 'value')
end
return {'set', version + 1}
