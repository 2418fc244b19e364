-- Exclusive locks, semaphores, read/write locks, and who waits for them.
-- Times are milliseconds since the Unix epoch by the store's clock.

CREATE TABLE locks (
  scope           TEXT PRIMARY KEY,
  counter         TEXT,              -- fence * 1,000,000 + 1 while it counts as held
  meta            TEXT,              -- JSON: who holds it
  lock_id         TEXT,              -- from here to locked_ms: the latest grant, until it is released
  fence           INTEGER,
  holds           INTEGER,
  execution_id    TEXT,
  request_id      TEXT,
  lease_ms        INTEGER,           -- how long its holder may be silent
  lease_end_ms    INTEGER,
  max_hold_end_ms INTEGER,
  tenure_meta     TEXT,
  locked_ms       INTEGER,
  fence_high      INTEGER NOT NULL,  -- only rises
  last_fence      INTEGER NOT NULL,  -- from here to last_request_id: the latest release
  last_lock_id    TEXT,
  last_request_id TEXT,
  free_since_ms   INTEGER,
  reap_ms         INTEGER,           -- when somebody should see whether the lease is over
  arrivals        INTEGER NOT NULL,
  touched_ms      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX locks_due ON locks (reap_ms) WHERE reap_ms IS NOT NULL;
CREATE INDEX locks_by_execution ON locks (execution_id) WHERE execution_id IS NOT NULL;
-- What nobody holds is forgotten after a while.
CREATE INDEX locks_idle ON locks (touched_ms) WHERE counter IS NULL;

CREATE TABLE permit_scopes (
  kind          TEXT NOT NULL,     -- sem, rw
  scope         TEXT NOT NULL,
  fence_high    INTEGER NOT NULL,  -- only rises
  free_since_ms INTEGER,
  arrivals      INTEGER NOT NULL,
  touched_ms    INTEGER NOT NULL,
  PRIMARY KEY (kind, scope)
) STRICT, WITHOUT ROWID;

CREATE TABLE permits (
  kind            TEXT NOT NULL,
  scope           TEXT NOT NULL,
  fence           INTEGER NOT NULL,
  lock_id         TEXT NOT NULL,
  weight          INTEGER NOT NULL,
  lease_end_ms    INTEGER NOT NULL,
  max_hold_end_ms INTEGER NOT NULL,
  execution_id    TEXT,
  PRIMARY KEY (kind, scope, fence)
) STRICT, WITHOUT ROWID;

CREATE INDEX permits_by_execution ON permits (execution_id) WHERE execution_id IS NOT NULL;

CREATE TABLE lock_waiters (
  kind           TEXT NOT NULL,     -- lock, sem, rw
  scope          TEXT NOT NULL,
  arrival        INTEGER NOT NULL,
  waiter         TEXT NOT NULL,     -- <node>|<request>
  alive_until_ms INTEGER NOT NULL,
  weight         INTEGER NOT NULL,
  PRIMARY KEY (kind, scope, arrival)
) STRICT, WITHOUT ROWID;

-- Who forced a lock open, and why. Kept for ever.
CREATE TABLE lock_audit (
  at_ms  INTEGER NOT NULL,
  scope  TEXT NOT NULL,
  who    TEXT NOT NULL,
  reason TEXT NOT NULL,
  before TEXT              -- JSON: who held it
) STRICT;
