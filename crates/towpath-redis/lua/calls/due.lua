-- due: takes up what is due of one function: ends of delays, ends of leases and deadlines, of each a number at most.
--
-- KEYS  1 calls  2 delayed  3 running  4 deadlines
-- ARGV  1 now, ms  2 until when the lines that are taken up are put off, ms  3 how many of each kind at most
-- gives {delays, leases, deadlines, why}, each of the first three a list of id, record, in the order of their scores, the last the trouble of
--       a kind that could not be read, or ``: the other kinds are taken up all the same
-- A line whose call is not in the state that it stands for is removed. A line that is taken up is put off, so that another server does not do
-- the same work; if this process dies, it is due again then.
local TIES_MAX = 256
local now, later, each = ARGV[1], ARGV[2], tonumber(ARGV[3])
local function due(lines, states, limit)
  local found, stale, put_off = {}, {}, {}
  local ids = call('ZRANGEBYSCORE', lines, '-inf', now, 'LIMIT', 0, limit)
  if #ids == 0 then return found end
  -- Lines of one instant are in the order of their ids, not of their submits: the host needs those that share the last one's.
  if #ids == limit then ids = call('ZRANGEBYSCORE', lines, '-inf', call('ZSCORE', lines, ids[limit]), 'LIMIT', 0, limit + TIES_MAX) end
  for i, record in ipairs(call('HMGET', KEYS[1], unpack(ids))) do
    if not record or not find(states, sub(record, 2, 2), 1, true) then
      stale[#stale + 1] = ids[i]
    else
      found[#found + 1], found[#found + 2] = ids[i], record
      put_off[#put_off + 1], put_off[#put_off + 2] = later, ids[i]
    end
  end
  all('ZREM', lines, stale)
  if #put_off > 0 then call('ZADD', lines, 'XX', unpack(put_off)) end
  return found
end
local why = ''
-- A key of a wrong type ends its kind before anything is written.
local function try(lines, states, limit)
  local fine, found = pcall(due, lines, states, limit)
  if fine then return found end
  why = type(found) == 'table' and found.err or tostring(found)
  return {}
end
local delays, leases = try(KEYS[2], 'D', each), try(KEYS[3], 'R', each)
-- What a delay or a lease brought up does not count as a deadline, too.
local deadlines = try(KEYS[4], 'QDR', each + (#delays + #leases) / 2)
for _, code in ipairs({ 'READONLY', 'MISCONF', 'NOREPLICAS', 'MASTERDOWN' }) do
  if find(why, code .. ' ', 1, true) then return redis.error_reply(why) end
end
return { delays, leases, deadlines, why }
