-- record: how a call's record is written down. The Rust side is `record.rs`; a test keeps the two alike.
-- Every run of a script makes its functions and tables anew, so each script gets only the files that it needs (`script.rs`).
--
-- A record is five lines and two pieces:
--   line 1  format and state, version, sequence, deadline, `1` if the request stands beside the record, delivery, started_at, lease,
--           lease_until, counted, holder: all that a claim reads and writes
--   line 2  submitted_at, retain, flags, failures, crashes, not_before, ended_at, exported
--   line 3  idempotency key      line 4  reply channels      line 5  lengths of the two pieces: tail, request
-- Fields of a line are separated by tabs. No name has a tab or a line break in it. Version and sequence together name one state of one call.
local call, match, sub, find, unpack, KEYS, ARGV = redis.call, string.match, string.sub, string.find, unpack, KEYS, ARGV
local FORMAT = '3'
-- Of a call that waits: version, what a claim keeps, deadline, `1` if its request stands beside its record, delivery.
local WAITING = '^3Q\t(%d+)(\t%d+\t(%d+)\t(%d)\t)(%d+)'
-- The field beside a record that holds its request, if that is large.
local REQUEST = '\1r'
