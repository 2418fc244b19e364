-- Batches: messages gathered per key, batches in flight, dead letters, and the settings of batchers.
-- Times are milliseconds since the Unix epoch by the store's clock.

CREATE TABLE batch_open (
  batcher     TEXT NOT NULL,
  bk          TEXT NOT NULL,
  batch       INTEGER NOT NULL,  -- whose messages are in batch_message
  first_ms    INTEGER NOT NULL,
  last_ms     INTEGER NOT NULL,
  deadline_ms INTEGER NOT NULL,
  reason      TEXT NOT NULL,     -- what will close it, as things stand
  sealed      INTEGER NOT NULL,  -- closed to postponement
  bytes       INTEGER NOT NULL,
  size        INTEGER NOT NULL,
  armed       INTEGER NOT NULL,  -- not while an earlier batch of the key is in flight
  PRIMARY KEY (batcher, bk)
) STRICT, WITHOUT ROWID;

CREATE INDEX batch_open_due ON batch_open (batcher, deadline_ms, bk) WHERE armed = 1;
CREATE INDEX batch_open_first ON batch_open (batcher, first_ms, bk);

-- The messages of open batches and of batches in flight. A claim hands the number of the batch over and rewrites no message.
CREATE TABLE batch_message (
  seq   INTEGER PRIMARY KEY,
  batch INTEGER NOT NULL,
  body  BLOB NOT NULL
) STRICT;

CREATE INDEX batch_message_of ON batch_message (batch, seq);

CREATE TABLE batch_flight (
  batcher  TEXT NOT NULL,
  batch_id TEXT NOT NULL,
  bk       TEXT NOT NULL,
  batch    INTEGER,            -- whose messages; NULL: those of the entry
  token    TEXT,               -- who may settle it; NULL: it waits for the next attempt
  attempt  INTEGER NOT NULL,
  first_ms INTEGER NOT NULL,
  last_ms  INTEGER NOT NULL,
  reason   TEXT NOT NULL,
  at_ms    INTEGER NOT NULL,   -- the end of the lease, or when the next attempt is due
  serial   INTEGER NOT NULL,   -- the next batch of the key waits for it
  entry    TEXT,               -- JSON: the dead letter that was replayed
  PRIMARY KEY (batcher, batch_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX batch_flight_due ON batch_flight (batcher, at_ms, batch_id);
CREATE UNIQUE INDEX batch_flight_serial ON batch_flight (batcher, bk) WHERE serial = 1;

-- Ids that were taken, and until when that counts.
CREATE TABLE batch_seen (
  batcher  TEXT NOT NULL,
  id       TEXT NOT NULL,      -- i:KEY:MESSAGE_ID, s:LIST:NUMBER
  until_ms INTEGER NOT NULL,
  PRIMARY KEY (batcher, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX batch_seen_over ON batch_seen (until_ms);

CREATE TABLE dead_letter (
  seq     INTEGER PRIMARY KEY AUTOINCREMENT,  -- a place in the list is never used twice
  batcher TEXT NOT NULL,
  id      TEXT NOT NULL,
  bk      TEXT,
  reason  TEXT,
  at_ms   INTEGER,
  entry   TEXT NOT NULL                       -- JSON, byte for byte as it was written
) STRICT;

CREATE INDEX dead_letter_by_id ON dead_letter (batcher, id, seq);
CREATE INDEX dead_letter_in_order ON dead_letter (batcher, seq);
CREATE INDEX dead_letter_by_age ON dead_letter (batcher, at_ms);

-- Who threw dead letters away. Kept for ever.
CREATE TABLE dead_letter_audit (
  at_ms   INTEGER NOT NULL,
  batcher TEXT NOT NULL,
  who     TEXT NOT NULL,
  what    TEXT NOT NULL        -- the id, or how many
) STRICT;

CREATE TABLE batchers (
  name       TEXT PRIMARY KEY,
  settings   TEXT NOT NULL,    -- JSON
  version    INTEGER NOT NULL, -- counts the changes of all batchers
  updated_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
