-- locks/scope.lua stands before every script of a lock: how the keys of one scope are read and written.
--
-- KEYS  1 C  string  n8n-lock-<scope>         the counter that old workflows INCR; here fence * 1,000,000 + 1
--       2 M  string  n8n-lock-<scope>:meta    the holder's identity, JSON (in a Cluster towpath:{C}:meta)
--       3 S  string  towpath:{C}:s            the record, see below
--       4 W  zset    towpath:{C}:w            waiter -> number of its arrival
--       5 D  zset    towpath:{C}:d            waiter -> alive until, ms
--       6 L  zset    towpath:lock:index       scope -> lease end (left out in a Cluster)
-- ARGV  1 now_ms  2 keep_ms (0 = keys expire when they are of no use; else all of them after so long, for a clock that is moved by hand)
--       3 scope  4 prefix of an execution's set ('' in a Cluster)  5 prefix of a node's channel
--
-- The record is one line of words, '-' for what is not there, and the texts that they measure:
--   version  highest fence  fence of the latest release  arrivals  free since  orphan: first seen, last seen, value
--   request of the latest release, '=' before it  bytes of its lock id
--   tenure: fence  lease end  cap  holds  granted at  request, '=' before it  bytes of lock id  bytes of execution id
--   line break, then without a break: lock id of the latest release, lock id, execution id, identity
-- The numbers judge. A TTL only sweeps, a little late.
local C, M, S, W, D, L = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local now, keep_ms, scope, sets, channels = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
local EPOCH, HOUR, LATE = 1704067200000, 3600000, 1000

local function int(number) return string.format('%d', number) end

local function lifetime(ms)
  if keep_ms > 0 then return keep_ms end
  return int(math.max(ms, 1))
end

-- The fence that a counter carries and what old callers have added to it; nothing when it is theirs, or no number.
local function read_counter(text)
  local sign, digits = string.match(text or '', '^([+-]?)(%d+)$')
  if not digits or sign == '-' or #digits < 7 or #digits > 18 then return nil, 0 end
  local fence = tonumber(string.sub(digits, 1, -7))
  return fence > 0 and fence or nil, tonumber(string.sub(digits, -6))
end

local WORDS = '^1 (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)\n()'

local function read_record()
  local text = redis.call('GET', S)
  if not text then return {high = 0, last = 0, arrivals = 0} end
  local high, last, arrivals, free_since, watched, seen, value, last_request, last_size, fence, lease_end, cap, holds, at, request,
    size, execution_size, begin = string.match(text, WORDS)
  if not high then return redis.error_reply('WRONGTYPE ' .. S .. ' is no record of a lock') end
  local r = {
    high = tonumber(high), last = tonumber(last), arrivals = tonumber(arrivals), free_since = tonumber(free_since),
    watched = tonumber(watched), seen = tonumber(seen), value = tonumber(value),
    last_request = last_request ~= '-' and string.sub(last_request, 2) or nil,
  }
  local ends = begin
  if last_size ~= '-' then
    ends = begin + tonumber(last_size)
    r.last_id = string.sub(text, begin, ends - 1)
  end
  if fence ~= '-' then
    local of_execution = ends + tonumber(size)
    local of_identity = of_execution + tonumber(execution_size)
    r.fence, r.lease_end, r.cap, r.holds, r.at = tonumber(fence), tonumber(lease_end), tonumber(cap), tonumber(holds), at
    r.request, r.id = string.sub(request, 2), string.sub(text, ends, of_execution - 1)
    r.execution, r.meta = string.sub(text, of_execution, of_identity - 1), string.sub(text, of_identity)
  end
  return r
end

local function write_record(r)
  local tenure = '- - - - - - - -'
  local until_ms = math.max(now, r.high * 100 + EPOCH) -- when the clock has caught up with the fence, nothing needs to be remembered
  if r.fence then
    tenure = int(r.fence) .. ' ' .. int(r.lease_end) .. ' ' .. int(r.cap) .. ' ' .. r.holds .. ' ' .. r.at .. ' =' .. r.request .. ' '
      .. #r.id .. ' ' .. #r.execution
    until_ms = math.max(until_ms, r.lease_end)
  end
  local watch = r.watched and int(r.watched) .. ' ' .. int(r.seen) .. ' ' .. int(r.value) or '- - -'
  local text = '1 ' .. int(r.high) .. ' ' .. int(r.last) .. ' ' .. int(r.arrivals) .. ' ' .. (r.free_since and int(r.free_since) or '-')
    .. ' ' .. watch .. ' ' .. (r.last_request and '=' .. r.last_request or '-') .. ' ' .. (r.last_id and #r.last_id or '-') .. ' '
    .. tenure .. '\n' .. (r.last_id or '')
  if r.fence then text = text .. r.id .. r.execution .. r.meta end
  redis.call('SET', S, text, 'PX', lifetime(until_ms - now + 2 * HOUR))
end

-- The sidecar, unless it is what our own latest tenure left behind.
local function foreign(r, meta) return meta and not (r.fence and meta == r.meta) and meta end

-- Whether the tenure counts. A counter that is gone while the sidecar is still ours was cut short by a failing old caller.
local function is_held(r, counter, counter_fence, meta)
  return r.fence and r.lease_end > now and (counter_fence == r.fence or (not counter and meta == r.meta))
end

-- Counter, sidecar and tenure end together.
local function publish(r)
  local life = lifetime(r.lease_end - now + LATE)
  redis.call('SET', C, int(r.fence) .. '000001', 'PX', life)
  redis.call('SET', M, r.meta, 'PX', life)
  if L then redis.call('ZADD', L, int(r.lease_end), scope) end
end

-- The tenure is no more: nobody needs to look after it.
local function unlist(r)
  if L then redis.call('ZREM', L, scope) end
  if sets ~= '' and r.execution and r.execution ~= '' then redis.call('SREM', sets .. r.execution, 'lock:' .. scope) end
end

-- From now on a repeated release and a late copy of the question are known as such.
local function note_release(r)
  unlist(r)
  r.last, r.last_id, r.last_request, r.free_since, r.fence = r.fence, r.id, r.request, now, nil
end

-- The turn passes on: the first two hear of it, the second in case the first is gone.
local function wake(r)
  if r.arrivals == 0 then return end
  for _, waiter in ipairs(redis.call('ZRANGE', W, 0, 1)) do
    redis.call('PUBLISH', channels .. string.match(waiter, '^[^|]*'), C .. ' ' .. waiter)
  end
end
