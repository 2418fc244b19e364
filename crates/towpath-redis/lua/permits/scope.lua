-- permits/scope.lua stands before every script of a semaphore or read/write lock: how the keys of one scope are read and written.
-- A read/write lock is a semaphore of 1,048,576 units: a reader takes one, a writer all.
--
-- KEYS  1 P  zset  towpath:{sem:<scope>}:p (or {rw:<scope>})    lock id -> lease end, ms
--       2 Q  hash  ..:q    lock id -> 'weight fence cap lease_ms execution_id'
--       3 W  zset  ..:w    waiter -> number of its arrival
--       4 D  zset  ..:d    waiter -> alive until, ms
--       5 V  hash  ..:v    waiter -> units that it wants
--       6 X  hash  ..:x    u units in use, n arrivals, h highest fence, s since when a silent head could have entered
--       7 U  zset  towpath:lock:used    sem:<scope> or rw:<scope> -> until when it may be in use (left out in a Cluster)
-- ARGV  1 now_ms  2 index member, as in 'sem:<scope>'  3 keep_ms, a space, the prefix of a node's channel, a space, the prefix of an
--         execution's set, as in locks/scope.lua
-- The numbers judge. A TTL only sweeps. U, the sets of executions and notifications decide nothing, as in locks/scope.lua.
local P, Q, W, D, V, X, U = unpack(KEYS)
local now, member = tonumber(ARGV[1]), ARGV[2]
local keep_ms, channels, sets = string.match(ARGV[3], '^(%d+) (%S+) (.*)$')
local EPOCH, HOUR = 1704067200000, 3600000

local function int(number) return string.format('%d', number) end

-- Several holders and waiters share these keys: their time is never made shorter.
local function keep(key, ms)
  if keep_ms ~= '0' then ms = tonumber(keep_ms) end
  if redis.call('PTTL', key) < ms then redis.call('PEXPIRE', key, int(ms)) end
end

-- Lists shall have it. What they no longer need is swept.
local function note_used(until_ms)
  if not U then return end
  redis.pcall('ZREMRANGEBYSCORE', U, '-inf', int(now))
  redis.pcall('ZADD', U, 'GT', int(until_ms), member)
end

local function read_permit(row)
  local weight, fence, cap, lease, execution = string.match(row, '^(%d+) (%d+) (%d+) (%d+) (.*)$')
  return tonumber(weight), tonumber(fence), tonumber(cap), execution, tonumber(lease)
end

local function write_permit(lock_id, weight, fence, cap, lease, execution)
  redis.call('HSET', Q, lock_id, int(weight) .. ' ' .. int(fence) .. ' ' .. int(cap) .. ' ' .. int(lease) .. ' ' .. execution)
end

-- A row that cannot be read has no units.
local function drop(lock_id, row)
  redis.call('HINCRBY', X, 'u', int(-(read_permit(row) or 0)))
  redis.call('HDEL', Q, lock_id)
  redis.call('ZREM', P, lock_id)
end

local function leave_queue(waiter)
  redis.call('ZREM', W, waiter)
  redis.call('ZREM', D, waiter)
  redis.call('HDEL', V, waiter)
end

local function wake(count)
  for _, waiter in ipairs(redis.call('ZRANGE', W, 0, count - 1)) do
    redis.pcall('PUBLISH', channels .. string.match(waiter, '^[^|]*'), P .. ' ' .. waiter)
  end
end
