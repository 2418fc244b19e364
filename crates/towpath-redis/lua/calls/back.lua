-- back: puts calls that wait outside the stream into it again, when only old workers serve the function: they look nowhere else.
--
-- KEYS  1 calls  2 requests  3 ready  4 workers  5 stream
-- ARGV  1 the instant since which a heartbeat counts as healthy  2 now, ms  3 the function's name  4 how many at most
-- gives the ids of those it put there; none when a worker of ours is healthy, or no old one is
-- They are answered on a list of their own, which the host reads: on the call's list somebody may wait who would take the answer and tell
-- nobody.
local now, max = tonumber(ARGV[2]), tonumber(ARGV[4])
local healthy = redis.call('ZRANGEBYSCORE', KEYS[4], '(' .. ARGV[1], '+inf')
if #healthy == 0 then return {} end
for _, worker in ipairs(healthy) do
  if string.sub(worker, 1, 4) ~= 'old:' then return {} end
end

-- The request's pieces by their letters; the params are the last.
local function pieces(text)
  local found, at = {}, 1
  while at <= #text do
    if string.sub(text, at, at) == '=' then
      found.p = string.sub(text, at + 1)
      return found
    end
    local tag, length, from = string.match(text, '^(.)(%d+):()', at)
    if not tag then return {} end
    at = from + tonumber(length)
    found[tag] = string.sub(text, from, at - 1)
  end
  return found
end

local function add(id, asked, timeout, list)
  local fields = { 'callId', id, 'functionName', ARGV[3], 'params', asked.p, 'inputItem', asked.i or '{}',
    'responseChannel', list, 'timeout', string.format('%.0f', timeout), 'timestamp', ARGV[2], 'proto', '1' }
  local function more(name, value)
    if value then
      fields[#fields + 1] = name
      fields[#fields + 1] = value
    end
  end
  more('noItem', not asked.i and '1')
  more('idempotencyKey', asked.k)
  more('depth', asked.d)
  more('parent', asked.a)
  more('traceparent', asked.t)
  return redis.call('XADD', KEYS[5], '*', unpack(fields))
end

local DEADLINE = '^' .. string.rep('[^\n]*\n', 8) .. '(%d+)\n'
-- Version, the lines from the sequence to the one before the channels, the channels, the function, how much of the record says what was
-- asked, the rest.
local LIFE = '^(%d+)\nQ\n\n(' .. string.rep('[^\n]*\n', 15) .. ')([^\n]*)\n([^\n]*\n)(%d+)\n(.*)$'
local put = {}
local function put_back(id)
  local life = redis.call('HGET', KEYS[1], id)
  if not life then return end
  local version, rest, channels, of, kept, pieces_of = string.match(life, LIFE)
  if not version then return end
  local request = tonumber(kept) > 0 and string.sub(life, -tonumber(kept)) or redis.call('HGET', KEYS[2], id)
  local deadline = tonumber(string.match(rest, DEADLINE))
  local asked = request and pieces(request) or {}
  -- What is late ends by itself.
  if not deadline or deadline <= now or not asked.p then return end
  local list = 'function:response:back:' .. id
  if not string.find('\t' .. channels .. '\t', '\t' .. list .. '\t', 1, true) then
    channels = channels == '' and list or channels .. '\t' .. list
  end
  local place = add(id, asked, deadline - now, list)
  redis.call('HSET', KEYS[1], id,
    string.format('%.0f', tonumber(version) + 1) .. '\nQ\n' .. place .. '\n' .. rest .. channels .. '\n' .. of .. kept .. '\n' .. pieces_of)
  redis.call('ZREM', KEYS[3], id)
  put[#put + 1] = id
end

for _, id in ipairs(redis.call('ZRANGE', KEYS[3], 0, max - 1)) do put_back(id) end
return put
