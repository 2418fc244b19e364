//! A program that leaves a line for every run, so that what really ran can be held against what was answered.

use std::collections::BTreeMap;
use std::path::Path;

/// Says that it runs, works for a moment, and answers with the id of its call.
pub(crate) const PROGRAM: &str = r#"echo "$TOWPATH_CALL_ID" >> runs; sleep 0.03; printf '"%s"' "$TOWPATH_CALL_ID""#;

/// How often each call ran.
pub(crate) fn runs(folder: &Path) -> BTreeMap<String, u32> {
    let text = std::fs::read_to_string(folder.join("runs")).unwrap_or_default();
    let mut runs = BTreeMap::new();
    for line in text.lines() {
        *runs.entry(line.to_owned()).or_default() += 1;
    }
    runs
}
