-- batches/place.lua stands before every script of batches: how the keys of one place are read and written. A place is a batcher, or one
-- part of it when its keys are spread.
--
--                              layout 'seed'                       layout 'own', T = towpath:{batch:<batcher>:<part>}
-- KEYS  1 DUE    zset    batch:deadlines                     T:due      batch key -> deadline, seconds with a fraction
--       2 FIRST  zset    batch:first_seen                    T:first    batch key -> time of its first message, seconds
--       3 FLY    zset    towpath:{batch:deadlines}:fly       T:fly      batch id -> end of its lease or next attempt, ms
--       4 DLQ    list    dlq:input_contour                   T:dlq      dead letters, JSON
--       5 N      string  towpath:{batch:deadlines}:n         T:n        how many messages are open, as far as they were counted
-- Made here of ARGV, because there are as many as there are batch keys; in a Cluster those that are known before are in KEYS too, unread:
--       M   list    queue:batch:<bk>     T:m:<bk>            messages of the open batch
--       O   string  own .. o:<bk>        state of the open batch, a line of words: its deadline, bytes, time of the latest message, of the
--                                        first, messages as counted in N, 1 if it is closed to postponement else 0, what closes it; in ms
--       FL  string  own .. fl:<bk>       id of the batch of this key that was claimed in turn
--       C   list    own .. c:<id>        messages of a claimed batch
--       CH  hash    own .. ch:<id>       its state: v bk tok att f l r, and p: the dead letter that it is, if it was replayed
--       I   string  own .. i:<bk>:<message id>, own .. s:<list>:<number>   until when it counts as seen, ms
-- ARGV  1 now_ms  2 what stands before bk in M  3 own: what our other keys begin with  4 channel for wake-ups
--       5 how long what is remembered is kept whatever it says, ms; '' = as long as it counts
-- An old worker leaves the list and the two zsets, and nothing else: what it has not written is worked out here.
local DUE, FIRST, FLY, DLQ, N = unpack(KEYS)
local now, lists, own, channel = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]

local function int(number) return string.format('%d', number) end
local function sec(ms) return string.format('%.3f', ms / 1000) end
local function ms(score) return math.floor(tonumber(score) * 1000 + 0.5) end
local function number(text) return tonumber(text or '0') or 0 end

-- The id of the batch of this key that was claimed in turn and is in flight. A marker whose batch is gone counts for nothing.
local function flying(bk)
  local marker = redis.call('GET', own .. 'fl:' .. bk)
  return marker and redis.call('ZSCORE', FLY, marker) and marker
end

local function bytes_of(bk)
  local bytes = 0
  for _, message in ipairs(redis.call('LRANGE', lists .. bk, 0, -1)) do bytes = bytes + #message end
  return bytes
end

-- What O says, or nothing.
local function parse_state(bk, text)
  if not text then return nil end
  local deadline, bytes, last, first, counted, sealed, reason = string.match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+) ([01]) (%S+)$')
  if not deadline then error('WRONGTYPE ' .. own .. 'o:' .. bk .. ' is no state of an open batch') end
  return tonumber(deadline), tonumber(bytes), tonumber(last), tonumber(first), tonumber(counted), sealed == '1', reason
end

local function read_state(bk) return parse_state(bk, redis.call('GET', own .. 'o:' .. bk)) end

local function state_text(deadline, bytes, last, first, counted, sealed, reason)
  return string.format('%d %d %d %d %d %d %s', deadline, bytes, last, first, counted, sealed and 1 or 0, reason)
end

-- The open batch of a key; nil if nothing is open, and then how many messages of it were counted.
local function read_open(bk)
  local n = redis.call('LLEN', lists .. bk)
  local deadline, bytes, last, first, counted, sealed, reason = read_state(bk)
  if n == 0 then return nil, counted or 0 end
  local due = redis.call('ZSCORE', DUE, bk)
  if counted ~= n then
    local score = redis.call('ZSCORE', FIRST, bk)
    bytes, first = bytes_of(bk), score and ms(score) or now
  end
  return {
    n = n, counted = counted or 0, armed = due and 1 or 0, deadline = deadline or (due and ms(due)) or now, bytes = bytes, first = first,
    last = last or now, sealed = sealed, reason = reason or 'silence_reached',
  }
end

local function count(change)
  if change ~= 0 then redis.call('SET', N, int(number(redis.call('GET', N)) + change)) end
end

local function keep_open(bk, open)
  redis.call('SET', own .. 'o:' .. bk, state_text(open.deadline, open.bytes, open.last, open.first, open.n, open.sealed, open.reason))
  redis.call('ZADD', FIRST, sec(open.first), bk)
  count(open.n - open.counted)
end

local function forget_open(bk, counted)
  redis.call('DEL', own .. 'o:' .. bk)
  redis.call('ZREM', DUE, bk)
  redis.call('ZREM', FIRST, bk)
  count(-counted)
end

-- A notification carries no truth: without the right to send it, the change is made all the same.
local function wake(at) redis.pcall('PUBLISH', channel, int(at)) end

local function as_row(open)
  return {open.first, open.last, open.deadline, open.reason, open.sealed and 1 or 0, open.bytes, open.n, open.armed}
end

