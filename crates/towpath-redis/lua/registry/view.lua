-- registry/view.lua: all that people ask about one function, read at one instant. Writes nothing.
-- KEYS  definition  hash     calls  hash     queue, exported, delayed, running  sorted sets     parked  set     dead, deadlines, workers  sorted sets
-- reply {} : not known
--       {definition, {queued, delayed, running, parked, dead}, {worker, heartbeat, ..}, {{id, record}, ..}, {key, kind, wanted kind, ..}}: the
--       fourth are the calls that have waited longest, the fifth the keys that hold something else
-- A count is the size of a set. A key of a wrong type counts as empty.
local definition = redis.call('HGET', KEYS[1], 'definition')
if not definition then return {} end
local KINDS = { 'hash', 'hash', 'zset', 'zset', 'zset', 'zset', 'set', 'zset', 'zset', 'zset' }
local wrong = {}
for i, wanted in ipairs(KINDS) do
  local kind = redis.call('TYPE', KEYS[i]).ok
  if kind ~= wanted and kind ~= 'none' then
    local n = #wrong
    wrong[n + 1], wrong[n + 2], wrong[n + 3] = KEYS[i], kind, wanted
  end
end
local function count(command, key)
  local size = redis.pcall(command, key)
  return type(size) == 'number' and size or 0
end
local queued, delayed = count('ZCARD', KEYS[3]) + count('ZCARD', KEYS[4]), count('ZCARD', KEYS[5])
local running, open = count('ZCARD', KEYS[6]), count('ZCARD', KEYS[9])
-- Calls past their deadline have left the queue before their timer ends them.
queued = math.max(queued, open - delayed - running)
local oldest = {}
for _, key in ipairs({ KEYS[3], KEYS[4] }) do
  local ids = redis.pcall('ZRANGE', key, 0, 0)
  local record = not ids.err and ids[1] and redis.pcall('HGET', KEYS[2], ids[1])
  if type(record) == 'string' then oldest[#oldest + 1] = { ids[1], record } end
end
local workers = redis.pcall('ZRANGE', KEYS[10], 0, -1, 'WITHSCORES')
if workers.err then workers = {} end
return { definition, { queued, delayed, running, count('SCARD', KEYS[7]), count('ZCARD', KEYS[8]) }, workers, oldest, wrong }
