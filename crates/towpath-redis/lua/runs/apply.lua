-- apply: makes changes of runs that the host decided, each as a whole or not at all, behind place.lua and section.lua.
-- ARGV  4 how many changes; per change: run id, the version that it must have (`` it must not exist), its next version, `1` if what is kept of
--         it goes first, header, the set of its standing, its score there (`` that of its entry), entry (`` stays, `-` goes, `n` or `f` it gets a new one in that queue), how long its keys
--         live in ms (`` no end), how many operations; per operation: how many words, the words. A key is `:name` of the run or `@name` of the
--         place. Besides commands: POST not-before target text · KNOW event number instant forgotten-before · STEPS · TELL channel message ·
--         SWEEP set now
-- gives per change: `ok`, or `changed`: the run has another version, and nothing was written
local RUN_KEYS = { '', ':j', ':in', ':er', ':et', ':kids', ':pub' }
local READS = { RPUSH = 'LLEN', ZADD = 'ZCARD', ZREM = 'ZCARD', ZREMRANGEBYSCORE = 'ZCARD', HSET = 'HLEN', HDEL = 'HLEN' }
local KNOWN_MAX, SWEPT = 10000, 3
local has_added = false

local function key_of(run, name) return sub(name, 1, 1) == '@' and T .. sub(name, 2) or run .. name end

-- All keys that the operations write are of their kinds, or this ends here.
local function check(run, a, count)
  for _ = 1, count do
    local name = ARGV[a + 1]
    local read = READS[name]
    if read then
      call(read, key_of(run, ARGV[a + 2]))
    elseif name == 'POST' then
      call('HLEN', T .. 'out'); call('ZCARD', T .. 'posts'); call('HLEN', T .. 'held'); call('GET', T .. 'seq')
    elseif name == 'KNOW' then
      call('HLEN', run .. ':er'); call('ZCARD', run .. ':et')
    elseif name == 'STEPS' then
      call('ZCARD', run .. ':in')
    end
    a = a + 1 + tonumber(ARGV[a])
  end
end

local special = {}

-- A post does not overtake an earlier one to the same run that was put off.
function special.POST(_, a)
  local number = string.format('%016.0f', call('INCR', T .. 'seq'))
  local held = call('HGET', T .. 'held', ARGV[a + 1])
  local not_before = math.max(tonumber(ARGV[a]), held and tonumber(match(held, '^%d+')) or 0)
  call('HSET', T .. 'out', number, ARGV[a + 2])
  call('ZADD', T .. 'posts', string.format('%.0f', not_before), number)
end

-- Remembers an event by its name and reference, and forgets two that came too long ago.
function special.KNOW(run, a)
  local known, order = run .. ':er', run .. ':et'
  call('HSET', known, ARGV[a], ARGV[a + 1] .. ' ' .. ARGV[a + 2])
  call('ZADD', order, ARGV[a + 2], ARGV[a])
  local old = call('ZRANGEBYSCORE', order, '-inf', ARGV[a + 3], 'LIMIT', 0, 2)
  if not old[1] and call('ZCARD', order) > KNOWN_MAX then old = call('ZRANGE', order, 0, 0) end
  for _, field in ipairs(old) do
    call('HDEL', known, field)
    call('ZREM', order, field)
  end
end

-- Facts of steps leave the inbox.
function special.STEPS(run)
  for _, fact in ipairs(call('ZRANGE', run .. ':in', 0, -1)) do
    if match(fact, '^%d+ %-?%d+ s') then call('ZREM', run .. ':in', fact) end
  end
end

-- A notification carries no truth: without the right to send it, the change is made all the same.
function special.TELL(_, a) redis.pcall('PUBLISH', ARGV[a], ARGV[a + 1]) end

-- Lines of some runs whose keys Redis has expired go.
function special.SWEEP(_, a)
  local set = T .. 'st:' .. ARGV[a]
  for _, gone in ipairs(call('ZRANGEBYSCORE', set, '-inf', ARGV[a + 1], 'LIMIT', 0, SWEPT)) do
    if call('EXISTS', run_key(gone)) == 0 then
      call('ZREM', set, gone)
      redis.pcall('ZREM', T .. 'runs', gone)
    end
  end
end

local function operate(run, a, count)
  for _ = 1, count do
    local length, name = tonumber(ARGV[a]), ARGV[a + 1]
    if special[name] then
      special[name](run, a + 2)
    else
      call(name, key_of(run, ARGV[a + 2]), unpack(ARGV, a + 3, a + length))
    end
    a = a + 1 + length
  end
end

local function change(id, version, next_version, clears, header, standing, score, entry, lives, from, count)
  local run = run_key(id)
  local kept = call('HMGET', run, 'v', 's', 'e')
  if (kept[1] or '') ~= version then return 'changed' end
  call('ZCARD', T .. 'st:' .. standing)
  if entry ~= '' then call('XLEN', P); call('XLEN', T .. 'first') end
  check(run, from, count)
  if clears == '1' then
    for _, name in ipairs(RUN_KEYS) do call('DEL', run .. name) end
  end
  call('HSET', run, 'v', next_version, 'h', header, 's', standing)
  has_written = true
  if kept[2] and kept[2] ~= standing then redis.pcall('ZREM', T .. 'st:' .. kept[2], id) end
  if score ~= '' then call('ZADD', T .. 'st:' .. standing, score, id) end
  if entry ~= '' then
    if kept[3] then remove_entry(kept[3]) end
    if entry == '-' then
      call('HDEL', run, 'e')
    else
      add_entry(entry, id)
      has_added = true
    end
  end
  operate(run, from, count)
  if lives ~= '' then
    for _, name in ipairs(RUN_KEYS) do call('PEXPIRE', run .. name, lives) end
  end
  return 'ok'
end

local replies = {}
for number = 1, tonumber(word()) do
  local head = words(9)
  local count = tonumber(word())
  local from = at + 1
  for _ = 1, count do at = at + 1 + tonumber(ARGV[at + 1]) end
  head[10], head[11] = from, count
  replies[number] = run_section(change, unpack(head))
end
if has_added then redis.pcall('PUBLISH', CHANNEL, '') end
return refused or replies
