//! A store on Redis: what the library's doctor found there.

use towpath::{Check, Verdict};
use towpath_core::store::Durability;

use super::{Examined, Finding, Level};

/// Looks at the Redis that a URL names; `None` for other kinds of store.
pub(super) async fn check(store: &str, durability: Option<Durability>) -> Option<Examined> {
    match towpath::examine(store, durability).await {
        Ok(None) => None,
        Ok(Some(examination)) => {
            let findings = examination.checks.into_iter().map(finding).collect();
            Some(Examined { findings, durability: examination.durability, is_redis: true })
        }
        Err(error) => {
            let findings = vec![Finding::fail("store", error.to_string(), "write the URL as the message says")];
            Some(Examined { findings, durability: None, is_redis: true })
        }
    }
}

fn finding(check: Check) -> Finding {
    let level = match check.verdict {
        Verdict::Ok => Level::Ok,
        Verdict::Warn | Verdict::Unknown => Level::Warn,
        Verdict::Fail => Level::Fail,
    };
    Finding { check: check.name.to_owned(), level, message: check.says, advice: check.advice }
}
