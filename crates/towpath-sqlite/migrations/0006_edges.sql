-- Lists of calls by every filter, whatever the number of calls, and a row that is written to find out whether the disk has room.

-- All calls of a function by state: its queue, and lists for people. It takes the place of the index of unfinished calls.
DROP INDEX calls_live;
DROP INDEX calls_dead;
CREATE INDEX calls_of_function ON calls (function_id, state, seq);
-- Calls that a worker holds or last held.
CREATE INDEX calls_of_worker ON calls (holder, seq) WHERE holder IS NOT NULL;

CREATE TABLE filler (
  only  INTEGER PRIMARY KEY CHECK (only = 1),
  bytes BLOB NOT NULL
) STRICT;
INSERT INTO filler (only, bytes) VALUES (1, x'');

-- How long the holder may be silent, so that a lease can be counted from the opening on.
ALTER TABLE permits ADD COLUMN lease_ms INTEGER NOT NULL DEFAULT 0;
