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

-- How long ids count, and what is written of each: the same for all messages of a rule.
local function memory(length) return {length = length, value = int(now + length), px = ARGV[5] ~= '' and ARGV[5] or int(length)} end

local rules = {}
for rule = 1, tonumber(word()) do
  rules[rule] = {
    max_wait = tonumber(word()), max_messages = tonumber(word()), max_bytes = tonumber(word()), serial = word() == '1',
    ids = memory(tonumber(word())), max_open = tonumber(word()),
  }
end
local messages = tonumber(word())
local sources = memory(tonumber(ARGV[at + messages * 7]))

-- What is the same for all messages is asked for once. All of it before the first write, so that a key of another kind does no harm.
local open_before = number(redis.call('GET', N))
local opened = open_before
local anything_flies = redis.call('ZCARD', FLY) > 0
redis.call('ZCARD', FIRST)
redis.call('ZCARD', DUE)

-- States, first times and deadlines are written together, at the end or before somebody reads them: a command for many keys costs little
-- more than one for one. Of two for one key the later counts. All three were seen to be of their kind, so none is refused.
local states, firsts, deadlines, state_of = {}, {}, {}, {}
local function write_pending()
  if #states > 0 then redis.call('MSET', unpack(states)) end
  if #firsts > 0 then redis.call('ZADD', FIRST, unpack(firsts)) end
  if #deadlines > 0 then redis.call('ZADD', DUE, unpack(deadlines)) end
  states, firsts, deadlines, state_of = {}, {}, {}, {}
end

local function add(pending, one, other)
  local place = #pending
  pending[place + 1], pending[place + 2] = one, other
end

local sec_now, latest, sec_latest = sec(now), nil, nil
local function sec_of(deadline) -- most that come together have the same
  if deadline ~= latest then latest, sec_latest = deadline, sec(deadline) end
  return sec_latest
end

-- Arms a key, and wakes whoever sleeps if it is the earliest. It is not while another has a deadline no later: one such witness is kept in
-- mind, so that the first of all is asked for only when there is none.
local witness, witness_deadline
local function arm(bk, deadline)
  if not witness or witness == bk or witness_deadline > deadline then
    write_pending()
    local first = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
    if not first[2] or deadline < ms(first[2]) then wake(deadline) end
    witness, witness_deadline = bk, deadline
  end
  add(deadlines, sec_of(deadline), bk)
end

local function disarm(bk)
  if state_of[bk] then write_pending() end
  redis.call('ZREM', DUE, bk)
  if witness == bk then witness = nil end
end

local function is_seen(mark) return number(redis.call('GET', mark)) > now end

local function remember(mark, kept) redis.call('SET', mark, kept.value, 'PX', kept.px) end

-- Remembers an id unless it counts as seen; says whether it did.
local function is_new(mark, kept)
  if redis.call('SET', mark, kept.value, 'PX', kept.px, 'NX') then return true end
  if is_seen(mark) then return false end
  remember(mark, kept) -- it is there still and counts no more
  return true
end

local function duplicate(bk)
  write_pending()
  local open = read_open(bk)
  return 'duplicate', open and open.deadline or -1, open and open.n or 0, ''
end

local function ingest(rule, bk, message, debounce, seal, id, source)
  id = id ~= '' and rule.ids.length > 0 and own .. 'i:' .. bk .. ':' .. id
  source = source ~= '' and own .. 's:' .. source
  if source and is_seen(source) then return duplicate(bk) end
  if opened >= rule.max_open then
    if id and is_seen(id) then return duplicate(bk) end
    return 'full', opened, 0, ''
  end
  local deadline, bytes, _, first, counted, sealed, reason = parse_state(bk, state_of[bk] or redis.call('GET', own .. 'o:' .. bk))
  local busy = rule.serial and anything_flies and flying(bk)

  if id and not is_new(id, rule.ids) then return duplicate(bk) end
  local n = redis.pcall('RPUSH', lists .. bk, message)
  if type(n) == 'table' then -- refused, and so the message is not known
    if id then redis.call('DEL', id) end
    error(n)
  end
  if source then remember(source, sources) end
  if n == 1 then -- a new batch; what is known of another was of a list that is gone
    first, bytes, sealed = now, #message, false
    add(firsts, sec_now, bk)
  elseif counted == n - 1 then
    bytes = bytes + #message
  else -- an old worker's list
    local score = redis.call('ZSCORE', FIRST, bk)
    first, bytes = score and ms(score) or now, bytes_of(bk)
    if not score then add(firsts, sec_now, bk) end
  end
  opened = opened + n - (counted or 0)

  if not sealed then
    local silence, cap = now + debounce, first + rule.max_wait
    if silence <= cap then deadline, reason = silence, 'silence_reached' else deadline, reason = cap, 'max_wait_reached' end
    local closed = (seal ~= '' and seal) or (n >= rule.max_messages and 'max_messages') or (bytes >= rule.max_bytes and 'max_bytes')
    if closed then deadline, reason, sealed = now, closed, true end
  end
  if busy then disarm(bk) else arm(bk, deadline) end
  local state = state_text(deadline, bytes, now, first, n, sealed, reason)
  add(states, own .. 'o:' .. bk, state)
  state_of[bk] = state
  return 'accepted', deadline, n, reason
end

local reply = {}
for message = 1, messages do
  local rule, bk, text, debounce, seal, id, source = unpack(ARGV, at, at + 6)
  at = at + 7
  local done, outcome, a, b, c = pcall(ingest, rules[tonumber(rule)], bk, text, tonumber(debounce), seal, id, source)
  if not done then
    local said = type(outcome) == 'table' and outcome.err or tostring(outcome)
    -- Whatever else a server refuses, it refuses from the first write on.
    if not string.find(said, 'WRONGTYPE', 1, true) then
      pcall(write_pending) -- should it have taken some all the same, those have their deadlines
      return redis.error_reply(said)
    end
    outcome, a, b, c = 'corrupt', 0, 0, said
  end
  local place = message * 4
  reply[place - 3], reply[place - 2], reply[place - 1], reply[place] = outcome, a, b, c
end
write_pending()
if opened ~= open_before then redis.call('SET', N, int(opened)) end
return reply
