-- registry/offer.lua = RegistryStore::define, and one function's part of RegistryStore::register.
-- Writes a definition, makes sure that the stream and its group exist, and notes that a worker offers the function.
-- KEYS  definition  hash        stream  stream        workers  sorted set        calls  hash        running  sorted set
--       held        set         the calls that the worker holds by the store's count
--       legacy      hash        what is remembered about the stream, see legacy/group.lua
-- ARGV  group       consumer group, '' = it has no stream
--       mode        'replace': the latest definition counts | 'adopt': one that exists is left alone
--       json        the definition
--       backlog     max_backlog, '-' = no limit         concurrent   max_concurrent, '' = no limit
--       worker      '' = nobody offers it               concurrency  of the worker's offer, '' = it counts for itself
--       now_ms      the worker's heartbeat              shards       over how many more streams it is spread, '' = none
-- reply {'changed' | 'same', 'changed' | 'same'}: the definition, the offer
local definition_key, stream, workers, calls, running, held = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local group, mode, json, backlog, concurrent = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local worker, concurrency, now, shards = ARGV[6], ARGV[7], ARGV[8], ARGV[9]

-- A worker and its callers meet at the group, so that it is there before the worker is announced.
if group ~= '' then
  local wrong = wrong_kind({ stream, 'stream', KEYS[7], 'hash' })
  if wrong then return redis.error_reply('WRONGTYPE ' .. wrong[2]) end
  ensure_group(stream, group, KEYS[7], now)
end

-- Writes a field, or removes it; says whether that made a difference.
local function put(field, value)
  local before = redis.call('HGET', definition_key, field) or ''
  if before == value then return false end
  if value == '' then
    redis.call('HDEL', definition_key, field)
  else
    redis.call('HSET', definition_key, field, value)
  end
  return true
end

local defined = 'same'
local exists = redis.call('HEXISTS', definition_key, 'definition') == 1
if not (exists and mode == 'adopt') then
  for field, value in pairs({ definition = json, max_backlog = backlog, max_concurrent = concurrent, shards = shards }) do
    if put(field, value) then defined = 'changed' end
  end
end

-- A worker that leaves counting to the store from now on may hold calls that were not counted.
local RUNNING = '^(' .. FORMAT .. 'R\t)(%d+)(\t%d+\t%d*\t%d+\t%d*\t)0(\t([^\n]*)\n%d+\t%d+\t%d+\t%d+\t(%d).*)$'
local function count_what_it_holds()
  for _, id in ipairs(redis.call('ZRANGE', running, 0, -1)) do
    local start, version, middle, rest, holder, parked = match(redis.call('HGET', calls, id) or '', RUNNING)
    if holder == worker then
      redis.call('HSET', calls, id, start .. (version + 1) .. middle .. '1' .. rest)
      if parked == '0' then redis.call('SADD', held, id) end
    end
  end
end

local offered = 'same'
if worker ~= '' and concurrency ~= '' and redis.call('HEXISTS', definition_key, 'offer:' .. worker) == 0 then count_what_it_holds() end
if worker ~= '' then
  local known = redis.call('ZSCORE', workers, worker)
  if put('offer:' .. worker, concurrency) or not known then offered = 'changed' end
  redis.call('ZADD', workers, now, worker)
end
return {defined, offered}
