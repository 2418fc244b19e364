-- locks/scope.lua stands before every script of a lock: how the keys of one scope are read and written.
--
-- KEYS  1 C  string  n8n-lock-<scope>         the counter that old workflows INCR; here fence * 1,000,000 + 1
--       2 M  string  n8n-lock-<scope>:meta    the holder's identity, JSON (in a Cluster towpath:{C}:meta)
--       3 S  string  towpath:{C}:s            the record, see below
--       4 W  zset    towpath:{C}:w            waiter -> number of its arrival
--       5 D  zset    towpath:{C}:d            waiter -> alive until, ms
--       6 L  zset    towpath:lock:index       scope -> lease end (left out in a Cluster)
--       7 U  zset    towpath:lock:used        lock:<scope> -> until when it may be waited for, or held by an old workflow (left out, too)
-- ARGV  1 now_ms  2 scope  3 keep_ms, a space, the prefix of a node's channel, a space, the prefix of an execution's set
--         keep_ms: 0 = keys expire when they are of no use; else all of them after so long, for a clock that is moved by hand
--         the prefix of an execution's set is empty in a Cluster
--
-- The record is one line of words, '-' for what is not there:
--   version  highest fence  fence of the latest release  arrivals  free since  orphan: first seen/last seen/value
--   request of the latest release, '=' before it  bytes of its lock id
-- then that lock id, and if there is a tenure, without a break, another line of words:
--   fence  lease end  cap  holds  granted at  lease, ms  request, '=' before it  bytes of lock id  bytes of execution id
-- and without a break lock id, execution id and identity.
-- The numbers judge. A TTL only sweeps, a little late. L, U, the sets of executions and notifications decide nothing: one that another program has
-- replaced, or that may not be sent, keeps no lock from its change.
local C, M, S, W, D, L, U = unpack(KEYS)
local now, scope = tonumber(ARGV[1]), ARGV[2]
local keep_ms, channels, sets = string.match(ARGV[3], '^(%d+) (%S+) (.*)$')
local EPOCH, HOUR, LATE = 1704067200000, 3600000, 1000

local function int(number) return string.format('%d', number) end

local function lifetime(ms)
  if keep_ms ~= '0' then return keep_ms end
  return int(math.max(ms, 1))
end

-- The fence that a counter carries and what old callers have added to it; nothing when it is theirs, or no number.
local function read_counter(text)
  local digits = text and string.match(text, '^+?(%d+)$')
  if not digits or #digits < 7 or #digits > 18 then return nil, 0 end
  local fence = tonumber(string.sub(digits, 1, -7))
  return fence > 0 and fence or nil, tonumber(string.sub(digits, -6))
end

local function read_record()
  local text = redis.call('GET', S)
  if not text then return {high = 0, last = 0, arrivals = 0} end
  local high, last, arrivals, free_since, watch, request, size, at = string.match(text, '^2 (%d+) (%d+) (%d+) (%S+) (%S+) (%S+) (%S+)\n()')
  if not high then return redis.error_reply('WRONGTYPE ' .. S .. ' is no record of a lock') end
  local r = {high = tonumber(high), last = tonumber(last), arrivals = tonumber(arrivals)}
  if free_since ~= '-' then r.free_since = tonumber(free_since) end
  if watch ~= '-' then
    local watched, seen, value = string.match(watch, '^(%d+)/(%d+)/(.+)$')
    r.watched, r.seen, r.value = tonumber(watched), tonumber(seen), tonumber(value)
  end
  if request ~= '-' then r.last_request = string.sub(request, 2) end
  if size ~= '-' then
    local last_id = at
    at = at + size
    r.last_id = string.sub(text, last_id, at - 1)
  end
  if at <= #text then
    local fence, lease_end, cap, holds, granted_at, lease, asked_as, id_size, execution_size, id =
      string.match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) =(%S+) (%d+) (%d+)\n()', at)
    local execution = id + id_size
    local meta = execution + execution_size
    r.fence, r.lease_end, r.cap, r.holds, r.at = tonumber(fence), tonumber(lease_end), tonumber(cap), tonumber(holds), granted_at
    r.lease = tonumber(lease)
    r.request, r.id = asked_as, string.sub(text, id, execution - 1)
    r.execution, r.meta = string.sub(text, execution, meta - 1), string.sub(text, meta)
  end
  return r
end

local function write_record(r)
  local ends = math.max(now, r.high * 100 + EPOCH) -- when the clock has caught up with the fence, nothing needs to be remembered
  local watch = r.watched and string.format('%d/%d/%d', r.watched, r.seen, r.value) or '-'
  local last_id = r.last_id or ''
  local text = string.format('2 %d %d %d %s %s %s %s\n', r.high, r.last, r.arrivals, r.free_since and int(r.free_since) or '-', watch,
    r.last_request and '=' .. r.last_request or '-', r.last_id and #last_id or '-')
  if r.fence then
    local tenure = string.format('%d %d %d %d %s %d =%s %d %d\n', r.fence, r.lease_end, r.cap, r.holds, r.at, r.lease, r.request,
      #r.id, #r.execution)
    text = text .. last_id .. tenure .. r.id .. r.execution .. r.meta
    ends = math.max(ends, r.lease_end)
  else
    text = text .. last_id
  end
  redis.call('SET', S, text, 'PX', lifetime(ends - now + 2 * HOUR))
  return text
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
  if L then redis.pcall('ZADD', L, int(r.lease_end), scope) end
end

-- Lists shall have it, though it is no tenure of ours. What they no longer need is swept.
local function note_used(until_ms)
  if not U then return end
  redis.pcall('ZREMRANGEBYSCORE', U, '-inf', int(now))
  redis.pcall('ZADD', U, 'GT', int(until_ms), 'lock:' .. scope)
end

-- The tenure is no more: nobody needs to look after it.
local function unlist(r)
  if L then redis.pcall('ZREM', L, scope) end
  if sets ~= '' and r.execution and r.execution ~= '' then redis.pcall('SREM', sets .. r.execution, 'lock:' .. scope) end
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
    redis.pcall('PUBLISH', channels .. string.match(waiter, '^[^|]*'), C .. ' ' .. waiter)
  end
end
