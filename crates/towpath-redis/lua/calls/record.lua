-- record: how scripts read and write a call's record. The Rust side is `record.rs`; a test keeps the two alike.
--
-- A record is five lines and two pieces:
--   line 1  format and state, version, delivery, started_at, lease, lease_until, counted, holder        what a claim writes
--   line 2  sequence, deadline, submitted_at, retain, flags, failures, crashes, not_before, ended_at, exported
--   line 3  idempotency key      line 4  reply channels      line 5  lengths of the two pieces: tail, request
-- Fields of a line are separated by tabs. No name has a tab or a line break in it.
local call, match, sub, find, unpack, KEYS, ARGV = redis.call, string.match, string.sub, string.find, unpack, KEYS, ARGV
local FORMAT = '2'
-- Of a call that waits: version, delivery, deadline, and `1` if its request stands beside its record.
local WAITING = '^' .. FORMAT .. 'Q\t(%d+)\t(%d+)\t[^\n]*\n%d+\t(%d+)\t%d+\t%d+\t%d%d(%d)'
-- Of any call: retain, ended_at.
local KEPT = '^[^\n]*\n%d+\t%d+\t%d+\t(%d+)\t%d+\t%d+\t%d+\t%d*\t(%d*)\t'
-- Of any call: its idempotency key.
local KEY = '^[^\n]*\n[^\n]*\n([^\n]*)\n'
-- The field beside a record that holds its request, if that is large.
local REQUEST = '\1r'

-- Whether an ended call is still kept. An open call is.
local function is_kept(record, now)
  local retain, ended_at = match(record, KEPT)
  return retain and (ended_at == '' or now < tonumber(ended_at) + tonumber(retain))
end

-- Ended calls that are still kept, by id: the record, and by id the bucket that has it. One command for each bucket, whatever the number of ids.
local function find_ended(buckets, ended, ids, now)
  local records, places = {}, {}
  for _, bucket in ipairs(buckets) do
    local left = {}
    for i, record in ipairs(#ids > 0 and call('HMGET', ended .. bucket, unpack(ids)) or {}) do
      if record and is_kept(record, now) then
        records[ids[i]], places[ids[i]] = record, ended .. bucket
      else
        left[#left + 1] = ids[i]
      end
    end
    ids = left
  end
  return records, places
end

-- A key of a wrong type ends a section while nothing is written: a section reads the keys that it will write, or writes first the one that it
-- has not read, or takes its first write back. Lines that a call leaves behind in a set that cannot be written do no harm.
local has_written = false

-- Runs one section. Its trouble is its own: `T` nothing was written, `X` something may have been.
local function run_section(section, ...)
  has_written = false
  local fine, reply = pcall(section, ...)
  if fine then return reply end
  local why = type(reply) == 'table' and reply.err or tostring(reply)
  -- What the server refuses from the first write on: nothing was written by any section.
  for _, code in ipairs({ 'OOM', 'READONLY', 'MISCONF', 'NOREPLICAS', 'MASTERDOWN' }) do
    if find(why, code .. ' ', 1, true) then error(reply) end
  end
  return { has_written and 'X' or 'T', why }
end

local function all(command, key, words) if #words > 0 then call(command, key, unpack(words)) end end
