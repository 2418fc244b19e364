-- Calls, the functions they name, the workers that serve them, and the shared configuration.
-- Times are milliseconds since the Unix epoch by the store's clock. Open with `sqlite3 -readonly` while a server runs.

CREATE TABLE functions (
  id          INTEGER PRIMARY KEY,
  scope       TEXT NOT NULL,
  name        TEXT NOT NULL,
  description TEXT,
  parameters  TEXT,           -- JSON: parameter definitions (array) or a JSON Schema (object)
  retry       TEXT NOT NULL,  -- JSON
  limits      TEXT NOT NULL,  -- JSON
  target      TEXT,           -- JSON: where calls are pushed
  forgotten   INTEGER NOT NULL DEFAULT 0,  -- not known any more, but ended calls still name it
  UNIQUE (scope, name)
) STRICT;

CREATE TABLE workers (
  worker_id         TEXT PRIMARY KEY,
  kind              TEXT NOT NULL,
  registered_ms     INTEGER NOT NULL,
  last_heartbeat_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE offers (
  worker_id   TEXT NOT NULL,
  position    INTEGER NOT NULL,  -- the order in which the worker named them
  function_id INTEGER NOT NULL,
  concurrency INTEGER,           -- NULL: the worker counts for itself
  PRIMARY KEY (worker_id, position)
) STRICT, WITHOUT ROWID;

-- What moves. One row is small, because it is rewritten at every move; what never changes stands in call_requests.
CREATE TABLE calls (
  seq              INTEGER PRIMARY KEY,  -- the order of submits; never used twice
  call_id          TEXT NOT NULL UNIQUE,
  function_id      INTEGER NOT NULL,
  state            TEXT NOT NULL,
  due_ms           INTEGER,              -- when something happens to it by itself
  submitted_ms     INTEGER NOT NULL,
  deadline_ms      INTEGER NOT NULL,
  retain_ms        INTEGER NOT NULL,
  failures         INTEGER NOT NULL,
  crashes          INTEGER NOT NULL,
  delivery         INTEGER NOT NULL,     -- the number of the latest delivery; it only rises
  holder           TEXT,                 -- the worker of the latest delivery
  started_ms       INTEGER,
  lease_ms         INTEGER NOT NULL,     -- how long the holder may be silent
  lease_until_ms   INTEGER,
  parked           INTEGER NOT NULL,
  cancel_requested INTEGER NOT NULL,
  not_before_ms    INTEGER,
  ended_ms         INTEGER,
  last_failure     TEXT,                 -- JSON
  replayed_as      TEXT
) STRICT;

-- Unfinished calls: the queue of each function, and what is counted when the store opens.
CREATE INDEX calls_live ON calls (function_id, state, seq) WHERE ended_ms IS NULL;
-- The one timer: deadlines, ends of leases, of delays and of retentions.
CREATE INDEX calls_due ON calls (due_ms, seq) WHERE due_ms IS NOT NULL;
CREATE INDEX calls_dead ON calls (seq) WHERE state = 'dead';

CREATE TABLE call_requests (
  seq             INTEGER PRIMARY KEY,
  params          TEXT NOT NULL,  -- JSON
  input_item      TEXT,           -- JSON
  idempotency_key TEXT,
  depth           INTEGER NOT NULL,
  parent          TEXT,
  traceparent     TEXT
) STRICT;

CREATE TABLE call_outcomes (
  seq     INTEGER PRIMARY KEY,
  kind    TEXT NOT NULL,  -- ok, failed, timed_out, expired, cancelled, exhausted, poisoned
  data    TEXT,           -- JSON
  failure TEXT            -- JSON
) STRICT;

CREATE TABLE call_progress (
  seq    INTEGER PRIMARY KEY,
  number INTEGER NOT NULL,
  value  TEXT NOT NULL  -- JSON
) STRICT;

CREATE TABLE idempotency_keys (
  function_id INTEGER NOT NULL,
  key         TEXT NOT NULL,
  seq         INTEGER NOT NULL,
  PRIMARY KEY (function_id, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE config (
  only       INTEGER PRIMARY KEY CHECK (only = 1),
  version    INTEGER NOT NULL,
  value      TEXT NOT NULL,  -- JSON
  updated_ms INTEGER NOT NULL
) STRICT;

-- Numbers that outlive the rows they came from.
CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
