-- limits/take.lua = LimitStore::take and LimitStore::reset. Rust twin: towpath-core limit/take.rs
-- Asks the rules of one or several checks. Of each check all rules allow and all are written, or none is; rules that only watch (flag s) are
-- such a group of their own, and deny nothing. Joined from clock, gcra, fixed_window, sliding_counter, sliding_log and take, in this order.
-- Checks that ask the same, each of a scope of its own, make a run: what they ask is said and read once.
-- KEYS  the state of every rule of every check, in order; what each holds is said in the part of its algorithm
-- ARGV  now_us   '' = TIME
--       per run:  verb  commit | peek | reset, checks  how many, rules  how many each, cost  negative gives back, 0 looks, max_wait_us
--       per rule: algorithm  g w c l, a, b, capacity, flags  d = counts denied calls, s = only watches
--         g  a / b = window_us / limit in lowest terms, capacity = burst      w  a = window_us, b = the number of the window in the key
--         c, l  a = window_us
-- reply {now_us, per check: 'allowed' | 'denied', and per rule
--                         g  what the key held, false = nothing: all that is told follows from it, and is computed by whoever asked
--                         w, c, l  ok 0|1, remaining, retry_us (-1 = none, -2 = never), reset_us, wait_us, count
--                       or 'rebucket': the caller's clock was in another window; nothing was done
--                       or 'corrupt', the place of a key that holds something else; nothing was done}
local call, pcall, floor, ceil, format, match = redis.call, redis.pcall, math.floor, math.ceil, string.format, string.match
local now, by_caller = tonumber(ARGV[1]), true
if not now then
  local time = call('TIME')
  now, by_caller = time[1] * 1000000 + time[2], false
end

local function int(number) return format('%d', number) end

-- How long a key is kept that is over after so many microseconds. The TTL only sweeps. It passes by the server's clock, so where the caller
-- brings the time it must outlast the caller's.
local function kept_ms(over_us)
  if by_caller then return '86400000' end
  return int(ceil(over_us / 1000) + 1000)
end

-- The same in seconds, at least one more than needed: most keys of a run are kept for as long, and the words are made once.
local seconds = {}
local function kept_s(over_us)
  if by_caller then return '86400' end
  local length = floor(over_us / 1000000) + 2
  local word = seconds[length]
  if not word then
    word = int(length)
    seconds[length] = word
  end
  return word
end

