-- Dead letters and audits by age, so that those past their retention are found without a scan.

CREATE INDEX calls_dead_by_age ON calls (ended_ms) WHERE state = 'dead';
CREATE INDEX lock_audit_by_age ON lock_audit (at_ms);
CREATE INDEX dead_letter_audit_by_age ON dead_letter_audit (at_ms);
