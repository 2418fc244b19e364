-- move: makes the changes that the host decided, if none of the calls has changed since the host looked; otherwise none of them.
--
-- KEYS  1 calls, then every key that a command below names by its number
-- ARGV  1 how many calls, then their ids, then the start of each one's life as the host saw it, up to its sequence: an id that
--       was forgotten and came again is another call
--       then commands: name, number of its key, count of its words, the words
--       besides the server's own commands: `COUNT field n` adds n and removes a field that has come to 0,
--       `UNKEY field id` removes a field that leads to this id, `LIVES id life n …` writes lives down, each with the last n bytes of what
--       stood there before: what was asked
-- gives the places of the calls that have changed; empty: it is done
local count = tonumber(ARGV[1])
local lives = redis.call('HMGET', KEYS[1], unpack(ARGV, 2, count + 1))
local changed = {}
for i = 1, count do
  local seen = ARGV[count + 1 + i]
  if not lives[i] or string.sub(lives[i], 1, #seen) ~= seen then changed[#changed + 1] = i end
end
if #changed > 0 then return changed end
local old = {}
for i = 1, count do old[ARGV[i + 1]] = lives[i] end

local own = {
  COUNT = function(key, field, n)
    if redis.call('HINCRBY', key, field, n) == 0 then redis.call('HDEL', key, field) end
  end,
  LIVES = function(key, ...)
    local words, written = {...}, {}
    for i = 1, #words, 3 do
      local n = tonumber(words[i + 2])
      written[#written + 1] = words[i]
      written[#written + 1] = n > 0 and words[i + 1] .. string.sub(old[words[i]], -n) or words[i + 1]
    end
    redis.call('HSET', key, unpack(written))
  end,
  UNKEY = function(key, field, id)
    if redis.call('HGET', key, field) == id then redis.call('HDEL', key, field) end
  end,
}
local at = 2 * count + 2
while at <= #ARGV do
  local name, key, words = ARGV[at], KEYS[tonumber(ARGV[at + 1])], tonumber(ARGV[at + 2])
  if own[name] then
    own[name](key, unpack(ARGV, at + 3, at + 2 + words))
  else
    redis.call(name, key, unpack(ARGV, at + 3, at + 2 + words))
  end
  at = at + 3 + words
end
return changed
