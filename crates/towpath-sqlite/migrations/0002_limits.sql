-- What is remembered of limits. Times are microseconds since the Unix epoch by the store's clock.
-- A row that is over counts for nothing; it is swept when new ones come.

CREATE TABLE limit_states (
  scope    TEXT NOT NULL,
  name     TEXT NOT NULL,     -- g:RULE[:KEY], w:NUMBER[:KEY], c:RULE[:KEY], l:RULE[:KEY]
  a        INTEGER NOT NULL,  -- gcra: due at; fixed window: count; sliding counter: length of a window
  b        INTEGER NOT NULL,  -- gcra: fraction of a microsecond; sliding counter: number of the window
  c        INTEGER NOT NULL,  -- gcra: its denominator; sliding counter: count of the window
  d        INTEGER NOT NULL,  -- sliding counter: count of the window before
  sweep_us INTEGER NOT NULL,
  PRIMARY KEY (scope, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX limit_states_sweep ON limit_states (sweep_us);

-- Rules that have counted something, for lists. A row is swept when nothing of it can be in use any more.
CREATE TABLE limit_rules (
  noted    TEXT PRIMARY KEY,  -- scope, name, algorithm, limit, window in ms, burst, flags and key, with line breaks between them
  sweep_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX limit_rules_sweep ON limit_rules (sweep_us);

-- The units of a sliding log; its row in limit_states only says when it is over.
CREATE TABLE limit_units (
  scope TEXT NOT NULL,
  name  TEXT NOT NULL,
  at_us INTEGER NOT NULL,
  n     INTEGER NOT NULL,
  PRIMARY KEY (scope, name, at_us)
) STRICT, WITHOUT ROWID;
