-- move: changes calls of one function as the host decided, each only if nobody changed it since the host looked.
--
-- KEYS  1 calls  2 requests  3 outcomes  4 progress  5 due  6 index  7 ready  8 aside  9 counts  10 busy  11 idempotency  12 stream
--       13 dead  14 where (only when one server has all keys)
-- ARGV  1 group   2 `1` in a Cluster   3 the inbox of this process, which it does not write to   4 how long a reply is kept, ms
--       then per call: id, version the host saw, new life (`` forget it), tail (`=` as it is), due (`=` as it is, `-` none),
--       state after (letter and whether parked: `R0`), what becomes of its entry, what is told, reply for lists of the seeds
--       entry: `.` nothing · `a` its run is over · `d` it no longer waits · `r` it waits again · `y` it is put off · `h` it runs on, outside
--       the stream          told: `.` nothing · `e` it ended · `c` it changed
-- gives per call: 1 done, 0 somebody was faster
local group, cluster, mine = ARGV[1], ARGV[2] == '1', ARGV[3]
local ids = {}
for at = 5, #ARGV, 9 do ids[#ids + 1] = ARGV[at] end
local before = redis.call('HMGET', KEYS[1], unpack(ids))
local WORD = { Q = 'queued', D = 'delayed', R = 'running', Z = 'dead' }
local replies, seen, counts, busy, pushes = {}, {}, {}, {}, {}
local lives, tails, dues, gone, undue, acks, dels = {}, {}, {}, {}, {}, {}, {}
local ready, unready, aside, unaside, dead, undead = {}, {}, {}, {}, {}, {}

local function add(to, key, n) to[key] = (to[key] or 0) + n end
local function push(channel, what)
  if channel ~= '' and channel ~= mine then
    local to = pushes[channel] or {}
    to[#to + 1] = what
    pushes[channel] = to
  end
end

local function count(from, parked_before, holder, to, parked_after)
  if WORD[from] and from ~= to then add(counts, WORD[from], -1) end
  if WORD[to] and from ~= to then add(counts, WORD[to], 1) end
  if parked_before ~= parked_after then
    local step = parked_after == '1' and 1 or -1
    add(counts, 'parked', step)
    add(busy, 'p:' .. holder, step)
  end
  if from == 'R' and to ~= 'R' then add(busy, 'r:' .. holder, -1) end
end

-- Entries of old callers carry no mark that tells a finished one from a new one, so they do not stay until the stream is trimmed.
local function from_an_old_caller(channels) return channels ~= '' and not string.find(channels, 'function:response:inbox:', 1, true) end

local function entry_of(what, id, entry, sequence, channels)
  if what == '.' then return end
  if entry ~= '' then
    acks[#acks + 1] = entry
    if what ~= 'd' and from_an_old_caller(channels) then dels[#dels + 1] = entry end
  end
  if what == 'd' then
    if entry ~= '' then dels[#dels + 1] = entry else unready[#unready + 1] = id end
  elseif what == 'r' then
    ready[#ready + 1] = sequence
    ready[#ready + 1] = id
  end
  if what == 'h' then aside[#aside + 1] = id elseif entry == '' then unaside[#unaside + 1] = id end
end

local function tell(what, id, life, tail, channels, reply)
  if what == '.' or channels == '' then return end
  for channel in string.gmatch(channels, '[^\t]+') do
    if string.find(channel, '^function:response:inbox:') then
      local text = 'i' .. #id .. ':' .. id
      if what == 'e' then text = text .. 'l' .. #life .. ':' .. life .. 't' .. #tail .. ':' .. tail end
      push(channel, text)
    elseif what == 'e' and not cluster then
      push(channel, reply)
    end
  end
end

for i, id in ipairs(ids) do
  local at = 5 + (i - 1) * 9
  local version, life, tail, due = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
  local after, what, told, reply = ARGV[at + 5], ARGV[at + 6], ARGV[at + 7], ARGV[at + 8]
  local old = before[i]
  local old_version, from, entry, sequence, holder, parked
  if old then
    old_version, from, entry, sequence, holder, parked =
      string.match(old, '^(%d+)\n(%u)\n([^\n]*)\n(%d+)\n%d+\n([^\n]*)\n%d*\n%d*\n%d*\n(%d)')
  end
  if old_version ~= version or seen[id] then
    replies[i] = 0
  else
    replies[i] = 1
    seen[id] = true
    count(from, parked, holder, string.sub(after, 1, 1), string.sub(after, 2, 2))
    entry_of(what, id, entry, sequence, string.match(old, '^.*\n([^\n]*)$'))
    if string.sub(after, 1, 1) == 'Z' then
      dead[#dead + 1] = sequence
      dead[#dead + 1] = id
    elseif from == 'Z' then
      undead[#undead + 1] = id
    end
    if life == '' then
      gone[#gone + 1] = id
      local key = string.match(old, '^.*\n([^\n]*)\n[^\n]*$')
      if key ~= '' and redis.call('HGET', KEYS[11], key) == id then redis.call('HDEL', KEYS[11], key) end
    else
      lives[#lives + 1] = id
      lives[#lives + 1] = life
      if tail ~= '=' then
        tails[#tails + 1] = id
        tails[#tails + 1] = tail
      end
      tell(told, id, life, tail, string.match(old, '^.*\n([^\n]*)$'), reply)
    end
    if due == '-' then
      undue[#undue + 1] = id
    elseif due ~= '=' then
      dues[#dues + 1] = due
      dues[#dues + 1] = id
    end
  end
end

local function all(command, key, values) if #values > 0 then redis.call(command, key, unpack(values)) end end
all('HSET', KEYS[1], lives)
all('HSET', KEYS[3], tails)
all('ZADD', KEYS[5], dues)
all('ZREM', KEYS[5], undue)
all('ZADD', KEYS[7], ready)
all('ZREM', KEYS[7], unready)
all('SREM', KEYS[8], unaside)
all('SADD', KEYS[8], aside)
all('ZADD', KEYS[13], dead)
all('ZREM', KEYS[13], undead)
if #gone > 0 then
  all('HDEL', KEYS[1], gone)
  all('HDEL', KEYS[2], gone)
  all('HDEL', KEYS[3], gone)
  all('HDEL', KEYS[4], gone)
  all('ZREM', KEYS[6], gone)
  if not cluster then all('HDEL', KEYS[14], gone) end
end
if #acks > 0 then redis.call('XACK', KEYS[12], group, unpack(acks)) end
all('XDEL', KEYS[12], dels)
for key, n in pairs(counts) do if n ~= 0 then redis.call('HINCRBY', KEYS[9], key, n) end end
for key, n in pairs(busy) do
  if n ~= 0 and redis.call('HINCRBY', KEYS[10], key, n) == 0 then redis.call('HDEL', KEYS[10], key) end
end
for channel, what in pairs(pushes) do
  redis.call('LPUSH', channel, unpack(what))
  redis.call('PEXPIRE', channel, ARGV[4])
end
return replies
