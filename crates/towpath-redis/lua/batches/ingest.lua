-- batches/ingest.lua = BatchStore::batch_ingest, behind place.lua. Rust twin: towpath-core batch/ingest.rs
-- Takes messages, one after the other: duplicate test, append, deadline, seal and arming of each are one step.
-- ARGV  6 how many rules; per rule: max_wait_ms  max_messages  max_bytes  serial 1|0  idempotency_ms  max_open
--       then how many messages; per message: its rule's number  bk  message  debounce_ms  seal '' | keyword | immediate
--         message id, '' = none or not remembered  source id, '' = none
--       then how long a source id counts, ms
-- reply per message four words: 'accepted', deadline, messages in its batch, what will close it
--                               'duplicate', deadline of the open batch or -1, its messages, ''
--                               'full', messages that are open, 0, ''
--                               'corrupt', 0, 0, what a key of another kind led to; nothing of this message was written
-- Wakes whoever sleeps when a deadline is earlier than all others.
local at = 6
local function word() at = at + 1; return ARGV[at - 1] end

local rules = {}
for rule = 1, tonumber(word()) do
  rules[rule] = {
    max_wait = tonumber(word()), max_messages = tonumber(word()), max_bytes = tonumber(word()), serial = word() == '1',
    idempotency = tonumber(word()), max_open = tonumber(word()),
  }
end
local messages = tonumber(word())
local source_ms = tonumber(ARGV[at + messages * 7])

-- What is the same for all messages is asked for once. All of it before the first write, so that a key of another kind does no harm.
local open_before = number(redis.call('GET', N))
local opened = open_before
local anything_flies = redis.call('ZCARD', FLY) > 0
redis.call('ZCARD', FIRST)

-- Arms a key, and wakes whoever sleeps if it is the earliest. It is not while another has a deadline no later: one such witness is kept in
-- mind, so that the first of all is asked for only when there is none.
redis.call('ZCARD', DUE)
local witness, witness_deadline
local function arm(bk, deadline)
  if not witness or witness == bk or witness_deadline > deadline then
    local first = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
    if not first[2] or deadline < ms(first[2]) then wake(deadline) end
    witness, witness_deadline = bk, deadline
  end
  redis.call('ZADD', DUE, sec(deadline), bk)
end

local function disarm(bk)
  redis.call('ZREM', DUE, bk)
  if witness == bk then witness = nil end
end

local function is_seen(mark) return mark and number(redis.call('GET', mark)) > now end

local function remember(mark, length)
  if mark then redis.call('SET', mark, int(now + length), 'PX', ARGV[5] ~= '' and ARGV[5] or int(length)) end
end

local function ingest(rule, bk, message, debounce, seal, id, source)
  local M = lists .. bk
  id = id ~= '' and rule.idempotency > 0 and own .. 'i:' .. bk .. ':' .. id
  source = source ~= '' and own .. 's:' .. source
  if is_seen(id) or is_seen(source) then
    local open = read_open(bk)
    return 'duplicate', open and open.deadline or -1, open and open.n or 0, ''
  end
  if opened >= rule.max_open then return 'full', opened, 0, '' end
  local deadline, bytes, _, first, counted, sealed, reason = read_state(bk)
  local busy = rule.serial and anything_flies and flying(bk)

  local n = redis.call('RPUSH', M, message)
  remember(id, rule.idempotency)
  remember(source, source_ms)
  if n == 1 then -- a new batch; what is known of another was of a list that is gone
    first, bytes, sealed = now, #message, false
    redis.call('ZADD', FIRST, sec(now), bk)
  elseif counted == n - 1 then
    bytes = bytes + #message
  else -- an old worker's list
    local score = redis.call('ZSCORE', FIRST, bk)
    first, bytes = score and ms(score) or now, bytes_of(bk)
    if not score then redis.call('ZADD', FIRST, sec(now), bk) end
  end
  opened = opened + n - (counted or 0)

  if not sealed then
    local silence, cap = now + debounce, first + rule.max_wait
    if silence <= cap then deadline, reason = silence, 'silence_reached' else deadline, reason = cap, 'max_wait_reached' end
    local closed = (seal ~= '' and seal) or (n >= rule.max_messages and 'max_messages') or (bytes >= rule.max_bytes and 'max_bytes')
    if closed then deadline, reason, sealed = now, closed, true end
  end
  write_state(bk, deadline, bytes, now, first, n, sealed, reason)
  if busy then disarm(bk) else arm(bk, deadline) end
  return 'accepted', deadline, n, reason
end

local reply = {}
for _ = 1, messages do
  local rule, bk, message, debounce, seal, id, source = rules[tonumber(word())], word(), word(), tonumber(word()), word(), word(), word()
  local done, outcome, a, b, c = pcall(ingest, rule, bk, message, debounce, seal, id, source)
  if not done then
    local said = type(outcome) == 'table' and outcome.err or tostring(outcome)
    -- Whatever else a server refuses, it refuses from the first write on.
    if not string.find(said, 'WRONGTYPE', 1, true) then return redis.error_reply(said) end
    outcome, a, b, c = 'corrupt', 0, 0, said
  end
  local place = #reply
  reply[place + 1], reply[place + 2], reply[place + 3], reply[place + 4] = outcome, a, b, c
end
if opened ~= open_before then redis.call('SET', N, int(opened)) end
return reply
