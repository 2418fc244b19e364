-- Lists of runs, those created last first. Each filter has an index that gives the runs in the order of lists.

CREATE INDEX runs_by_creation ON runs (created_ms, run_id);
CREATE INDEX runs_by_place ON runs (place, state, created_ms, run_id);
CREATE INDEX runs_by_cause ON runs (cause, created_ms, run_id) WHERE cause IS NOT NULL;
CREATE INDEX runs_by_parent ON runs (parent, created_ms, run_id) WHERE parent IS NOT NULL;
CREATE INDEX runs_by_reference ON runs (reference, created_ms, run_id) WHERE reference IS NOT NULL;
