//! Limits in the words of n8n.

use serde_json::{Value, json};
use towpath::limits::LimitError;
use towpath::limits::n8n::RateLimitCheck;
use towpath::testing::TestTowpath;

use crate::on_every_store;
use crate::support::{millis, seconds};

on_every_store! {
    an_n8n_workflow_that_leaves_everything_out_asks_for_ten_in_a_minute
    denied_calls_count_and_the_next_window_is_empty
    what_cannot_be_is_refused_in_words_and_counts_nothing
    others_who_ask_for_the_same_window_see_the_same_counts
}

fn asks(scope: &str, limit: u64, window_seconds: u64) -> RateLimitCheck {
    RateLimitCheck { scope: Some(scope.to_owned()), limit: Some(limit), window_seconds: Some(window_seconds) }
}

async fn output(test: &TestTowpath, inputs: RateLimitCheck) -> Value {
    serde_json::to_value(test.rate_limit_check(inputs).await.unwrap()).unwrap()
}

/// To the beginning of a window.
async fn to_the_edge(test: &TestTowpath, window_ms: i64) {
    let past = test.now().as_millis().rem_euclid(window_ms);
    test.advance(millis(u64::try_from(window_ms - past).unwrap())).await;
}

async fn an_n8n_workflow_that_leaves_everything_out_asks_for_ten_in_a_minute(test: TestTowpath) {
    to_the_edge(&test, 60_000).await;
    for count in 1..=12 {
        let expected = json!({ "allowed": count <= 10, "scope": "default", "count": count, "limit": 10 });
        assert_eq!(output(&test, RateLimitCheck::default()).await, expected);
    }
    test.advance(millis(59_999)).await;
    assert_eq!(output(&test, RateLimitCheck::default()).await["count"], 13, "the minute is not over");
    test.advance(millis(1)).await;
    assert_eq!(output(&test, RateLimitCheck::default()).await["count"], 1);
}

async fn denied_calls_count_and_the_next_window_is_empty(test: TestTowpath) {
    to_the_edge(&test, 5_000).await;
    for (count, allowed) in [(1, true), (2, true), (3, false), (4, false)] {
        let expected = json!({ "allowed": allowed, "scope": "mail api:meta", "count": count, "limit": 2 });
        assert_eq!(output(&test, asks("mail api:meta", 2, 5)).await, expected);
    }
    assert_eq!(output(&test, asks("mail api:meta", 4, 5)).await["allowed"], false, "the fifth, whatever its own limit is");
    assert_eq!(output(&test, asks("other", 2, 5)).await["count"], 1);
    test.advance(seconds(5)).await;
    assert_eq!(output(&test, asks("mail api:meta", 2, 5)).await["count"], 1);
}

async fn what_cannot_be_is_refused_in_words_and_counts_nothing(test: TestTowpath) {
    to_the_edge(&test, 60_000).await;
    let long = "x".repeat(257);
    for (inputs, code, text) in [
        (asks("s", 0, 60), "out_of_range", "limit is 0: it must be from 1 to 1000000000"),
        (asks("s", 1_000_000_001, 60), "out_of_range", "limit is 1000000001: it must be from 1 to 1000000000"),
        (asks("s", 10, 0), "out_of_range", "windowSeconds is 0: it must be from 1 to 2678400"),
        (asks("s", 10, 2_678_401), "out_of_range", "windowSeconds is 2678401: it must be from 1 to 2678400"),
        (asks("s", 10, u64::MAX), "out_of_range", "windowSeconds is 18446744073709551615: it must be from 1 to 2678400"),
        (asks("", 10, 60), "invalid_name", "scope is empty"),
        (asks("  ", 10, 60), "invalid_name", "scope is empty"),
        (asks(&long, 10, 60), "invalid_name", "scope has 257 bytes"),
        (asks("a\nb", 10, 60), "invalid_name", "scope contains the control character"),
    ] {
        let refused: LimitError = test.rate_limit_check(inputs.clone()).await.unwrap_err();
        assert_eq!(refused.code(), code, "{inputs:?}");
        assert!(refused.to_string().starts_with(text), "{inputs:?}: {refused}");
    }
    assert_eq!(output(&test, asks("s", 10, 60)).await["count"], 1);
}

async fn others_who_ask_for_the_same_window_see_the_same_counts(test: TestTowpath) {
    to_the_edge(&test, 60_000).await;
    assert_eq!(output(&test, asks("s", 10, 60)).await["count"], 1);
    let rule = towpath::limits::Rule::seed(10, seconds(60)).unwrap();
    assert_eq!(test.limit("s").rule(rule).take().await.unwrap().count, 2);
    assert_eq!(output(&test, asks("s", 10, 60)).await["count"], 3);
}
