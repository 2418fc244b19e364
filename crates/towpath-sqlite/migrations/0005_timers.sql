-- A timer index for each kind, so that no kind waits behind another, and the end of a retention beside them, which is not a timer.

DROP INDEX calls_due;
ALTER TABLE calls DROP COLUMN due_ms;
-- When the call is gone: its end plus its retention. NULL while it is open, and for a dead letter.
ALTER TABLE calls ADD COLUMN kept_until_ms INTEGER;
UPDATE calls SET kept_until_ms = iif(retain_ms > 9223372036854775807 - ended_ms, 9223372036854775807, ended_ms + retain_ms)
  WHERE ended_ms IS NOT NULL AND state <> 'dead';

CREATE INDEX calls_delay ON calls (not_before_ms, seq) WHERE not_before_ms IS NOT NULL;
CREATE INDEX calls_lease ON calls (lease_until_ms, seq) WHERE lease_until_ms IS NOT NULL;
CREATE INDEX calls_deadline ON calls (deadline_ms, seq) WHERE ended_ms IS NULL;
-- Rows to remove.
CREATE INDEX calls_kept ON calls (kept_until_ms) WHERE kept_until_ms IS NOT NULL;
