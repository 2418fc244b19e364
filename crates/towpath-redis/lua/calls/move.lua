-- move: makes the changes that the host decided, if none of the calls has changed since the host looked; otherwise none of them.
--
-- KEYS  1 calls, then every key that a command below names by its number
-- ARGV  1 how many calls are compared, then their ids, then the start of each one's life as the host saw it, up to its sequence: an id that
--       was forgotten and came again is another call. 0: they are as the stream took them, which `ABSENT` and `PENDING` see
--       then commands: name, number of its key, count of its words, the words
--       besides the server's own commands: `COUNT field n` adds n and removes a field that has come to 0,
--       `UNKEY field id` removes a field that leads to this id, `LIVES place life n …` writes the lives of the calls at these places
--       down, each with the last n bytes of what stood there before: what was asked, `ACKDEL group entry …` acknowledges entries,
--       given oldest first, and deletes them
--       before all others come `KEEP ids` the lives of these calls, a line each, are about to be written beside this script: they are kept
--       for `restore` if that is not to be; `ABSENT` the key is not there; `PENDING group entry …` does what `ACKDEL` does if all are pending
-- gives the places of the calls that have changed; empty: it is done; 0: not all entries were pending, or a key was there, so the calls are
--       to be named as the host saw them. Entries may be acknowledged then, and nothing else is done
local call, find, unpack, ARGV = redis.call, string.find, unpack, ARGV
local count = tonumber(ARGV[1])
local lives = count > 0 and call('HMGET', KEYS[1], unpack(ARGV, 2, count + 1))
local changed = {}
for i = 1, count do
  local life = lives[i]
  if not life or find(life, ARGV[count + 1 + i], 1, true) ~= 1 then changed[#changed + 1] = i end
end
if #changed > 0 then return changed end

-- Many that are done are mostly the oldest of all, which a trim takes without looking for each: what is older than all that is pending was
-- read and acknowledged. Says which of them come first that are still there.
local MANY = 16
local function trim(stream, group, from, to)
  local pending = redis.pcall('XPENDING', stream, group)
  local oldest = not pending.err and pending[2]
  if not oldest then return from end
  call('XTRIM', stream, 'MINID', oldest)
  local ms, n = string.match(oldest, '^(%d+)-(%d+)$')
  ms, n = tonumber(ms), tonumber(n)
  local left = to + 1
  while left > from do
    local of_ms, of_n = string.match(ARGV[left - 1], '^(%d+)-(%d+)$')
    of_ms, of_n = tonumber(of_ms), tonumber(of_n)
    if of_ms < ms or (of_ms == ms and of_n < n) then break end
    left = left - 1
  end
  return left
end

-- Removes entries that are acknowledged.
local function delete(stream, group, from, to)
  if to - from >= MANY - 1 then from = trim(stream, group, from, to) end
  if from <= to then call('XDEL', stream, unpack(ARGV, from, to)) end
end

-- Nothing is done. What is written beside this script shall not stand either.
local kept_in, kept_ids
local function refuse()
  if kept_in then call('DEL', kept_in) end
  for id in string.gmatch(kept_ids or '', '[^\n]+') do
    call('HSET', kept_in, id, call('HGET', KEYS[1], id) or '')
  end
  return { 0 }
end

local at = 2 * count + 2
while at <= #ARGV do
  local name, key, from, to = ARGV[at], KEYS[tonumber(ARGV[at + 1])], at + 3, at + 2 + tonumber(ARGV[at + 2])
  if name == 'LIVES' then
    local written, n = {}, 0
    for i = from, to, 3 do
      local place, kept = tonumber(ARGV[i]), ARGV[i + 2]
      written[n + 1] = ARGV[place + 1]
      written[n + 2] = kept == '0' and ARGV[i + 1] or ARGV[i + 1] .. string.sub(lives[place], -kept)
      n = n + 2
    end
    call('HSET', key, unpack(written))
  elseif name == 'ACKDEL' or name == 'PENDING' then
    -- A stream that is none is nothing to go on with, and must not end the script before what it keeps is kept.
    local acknowledged = (name == 'PENDING' and redis.pcall or call)('XACK', key, unpack(ARGV, from, to))
    if name == 'PENDING' and (type(acknowledged) ~= 'number' or acknowledged < to - from) then return refuse() end
    delete(key, ARGV[from], from + 1, to)
  elseif name == 'KEEP' then
    kept_in, kept_ids = key, ARGV[from]
  elseif name == 'ABSENT' then
    if call('EXISTS', key) == 1 then return refuse() end
  elseif name == 'COUNT' then
    if call('HINCRBY', key, ARGV[from], ARGV[from + 1]) == 0 then call('HDEL', key, ARGV[from]) end
  elseif name == 'UNKEY' then
    if call('HGET', key, ARGV[from]) == ARGV[from + 1] then call('HDEL', key, ARGV[from]) end
  else
    call(name, key, unpack(ARGV, from, to))
  end
  at = to + 1
end
return changed
