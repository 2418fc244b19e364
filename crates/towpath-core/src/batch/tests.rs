//! Batches: what the old worker's page shows comes out exactly; nothing is lost by merging, splitting or giving up.

mod dead_letters;
mod keys;
mod merging;
mod moves;

use super::*;
use crate::names::{BatchId, BatchKey, BatchToken, BatcherName};
use crate::time::Timestamp;

fn input_contour() -> Settings {
    Settings::of(&BatcherName::new("input_contour").unwrap())
}

fn patched(json: &str) -> Settings {
    input_contour().patched(&serde_json::from_str(json).unwrap()).unwrap()
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000 + ms)
}

fn batch(messages: &[&str]) -> ClaimedBatch {
    ClaimedBatch {
        batch_id: BatchId::new("b-1").unwrap(),
        key: BatchKey::new("a1b2c3d4:telegram:123456789").unwrap(),
        token: BatchToken::new("t-1").unwrap(),
        attempt: 1,
        lease_end: at(75_000),
        now: at(15_000),
        first: at(1_000),
        last: at(5_000),
        reason: CloseReason::SilenceReached,
        messages: messages.iter().map(|message| Message::new((*message).to_owned())).collect(),
        payload: None,
    }
}
