-- Runs of workflows. The header decides; what stands in columns beside it is there to be found by.
-- Times are milliseconds since the Unix epoch by the store's clock.

CREATE TABLE runs (
  run_id        TEXT PRIMARY KEY,
  place         TEXT NOT NULL,     -- the name of its stream: workflow/<name>/<version>[/<shard>]
  workflow      TEXT NOT NULL,
  reference     TEXT,
  input_hash    TEXT NOT NULL,
  state         TEXT NOT NULL,
  cause         TEXT,              -- why it is blocked or backs off
  queue         INTEGER,           -- while it is to be claimed: 0 was begun before, 1 is new
  turn          INTEGER NOT NULL,  -- its place in that queue
  expires_ms    INTEGER,           -- while it is claimed: the end of the claim
  kept_until_ms INTEGER,           -- once it has closed: the end of its retention
  created_ms    INTEGER NOT NULL,
  changed_ms    INTEGER NOT NULL,
  parent        TEXT,
  header        TEXT NOT NULL      -- JSON: all that a decision needs
) STRICT, WITHOUT ROWID;

CREATE INDEX runs_queued ON runs (place, queue, turn) WHERE queue IS NOT NULL;
CREATE INDEX runs_claimed ON runs (place, expires_ms) WHERE expires_ms IS NOT NULL;
-- Runs that another build may mend.
CREATE INDEX runs_unfit ON runs (place, run_id) WHERE cause IN ('nondeterminism', 'foreign_await', 'panicked', 'decode');
CREATE INDEX runs_kept ON runs (kept_until_ms) WHERE kept_until_ms IS NOT NULL;

-- The latest run that a reference was given to.
CREATE TABLE run_references (
  workflow  TEXT NOT NULL,
  reference TEXT NOT NULL,
  run_id    TEXT NOT NULL,
  PRIMARY KEY (workflow, reference)
) STRICT, WITHOUT ROWID;

CREATE TABLE run_journal (
  run_id TEXT NOT NULL,
  number INTEGER NOT NULL,
  at_ms  INTEGER NOT NULL,
  kind   TEXT NOT NULL,
  step   TEXT,
  body   TEXT NOT NULL,            -- JSON
  PRIMARY KEY (run_id, number)
) STRICT, WITHOUT ROWID;

-- What came from outside and is not consumed.
CREATE TABLE run_facts (
  run_id  TEXT NOT NULL,
  number  INTEGER NOT NULL,
  at_ms   INTEGER NOT NULL,
  of_step INTEGER NOT NULL,        -- 1: it goes with its generation
  body    TEXT NOT NULL,           -- JSON
  PRIMARY KEY (run_id, number)
) STRICT, WITHOUT ROWID;

-- Events that came with a reference, for a day.
CREATE TABLE run_events_known (
  run_id    TEXT NOT NULL,
  name      TEXT NOT NULL,
  reference TEXT NOT NULL,
  number    INTEGER NOT NULL,
  at_ms     INTEGER NOT NULL,
  PRIMARY KEY (run_id, name, reference)
) STRICT, WITHOUT ROWID;

CREATE INDEX run_events_known_old ON run_events_known (at_ms);

CREATE TABLE run_timers (
  run_id TEXT NOT NULL,
  timer  TEXT NOT NULL,            -- start, back_off, deadline, after_deadline, or the id of a step
  due_ms INTEGER NOT NULL,
  PRIMARY KEY (run_id, timer)
) STRICT, WITHOUT ROWID;

CREATE INDEX run_timers_due ON run_timers (due_ms, run_id);

-- Children that are open.
CREATE TABLE run_children (
  run_id TEXT NOT NULL,
  step   TEXT NOT NULL,
  child  TEXT NOT NULL,            -- JSON
  PRIMARY KEY (run_id, step)
) STRICT, WITHOUT ROWID;

CREATE TABLE run_published (
  run_id TEXT NOT NULL,
  key    TEXT NOT NULL,
  value  TEXT NOT NULL,            -- JSON
  PRIMARY KEY (run_id, key)
) STRICT, WITHOUT ROWID;

-- Notices to other runs that were not sent yet.
CREATE TABLE run_posts (
  number        INTEGER PRIMARY KEY AUTOINCREMENT,
  to_run        TEXT NOT NULL,
  written_ms    INTEGER NOT NULL,
  not_before_ms INTEGER NOT NULL,  -- its run has refused it, or an earlier one
  tries         INTEGER NOT NULL,
  post          TEXT NOT NULL      -- JSON
) STRICT;

CREATE INDEX run_posts_due ON run_posts (not_before_ms, number);
CREATE INDEX run_posts_to ON run_posts (to_run, not_before_ms);
