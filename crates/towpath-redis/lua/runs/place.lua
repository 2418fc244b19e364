-- place: what all scripts of a place of runs share.
-- KEYS  the stream of the place first; in a Cluster all keys that the script may touch
-- ARGV  1 start of the place's own keys, 2 the stream's name, 3 channel on which a new entry is told
local call, find, sub, match, unpack, KEYS, ARGV = redis.call, string.find, string.sub, string.match, unpack, KEYS, ARGV
local T, P, CHANNEL, GROUP = ARGV[1], ARGV[2], ARGV[3], 'towpath'
local at = 3
local function word() at = at + 1; return ARGV[at] end
local function words(count) local all = {}; for i = 1, count do all[i] = word() end; return all end

local function run_key(id) return T .. 'run:' .. id end
-- An entry is known as the letter of its queue and its number: `n` new runs, `f` runs that were begun.
local function stream_of(queue) return queue == 'n' and P or T .. 'first' end
local function remove_entry(entry)
  local stream, number = stream_of(sub(entry, 1, 1)), sub(entry, 2)
  redis.pcall('XACK', stream, GROUP, number)
  redis.pcall('XDEL', stream, number)
end
-- Ready runs are in a set for each queue, in the order of their entries.
local function set_of(queue) return queue == 'n' and 'ready' or 'begun' end
local function add_entry(queue, id)
  local number = call('XADD', stream_of(queue), '*', 'v', '1', 'run', id)
  local ms, count = match(number, '^(%d+)-(%d+)$')
  call('ZADD', T .. 'st:' .. set_of(queue), string.format('%.0f', tonumber(ms) * 1000 + math.min(tonumber(count), 999)), id)
  call('HSET', run_key(id), 'e', queue .. number)
end
