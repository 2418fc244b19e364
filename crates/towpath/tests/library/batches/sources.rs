//! Lists of old producers: every element is taken once, in order, whatever is in it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::{Value, json};
use towpath::batches::{Batcher, DeadLetterQuery, FunctionReceiver, SettingsPatch, Source};
use towpath::{Clock, StoreError, Towpath, VirtualClock};
use towpath_core::store::{BatchSource, DrainReply, Drained};
use towpath_core::time::Timestamp;

use crate::support::seconds;

/// A list in memory whose answers to a removal get lost now and then, as if the drainer died there.
#[derive(Debug)]
struct List {
    clock: VirtualClock,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Bytes>,
    aside: VecDeque<Bytes>,
    from: u64,
    removals: u64,
    /// Who drains it, and until when.
    leader: Option<(String, Timestamp)>,
}

#[async_trait]
impl BatchSource for List {
    async fn drain(&self, _list: &str, max: usize, wait: Duration) -> Result<Drained, StoreError> {
        let until = self.clock.now() + wait;
        loop {
            {
                let mut state = self.state.lock().unwrap();
                while state.aside.len() < max
                    && let Some(element) = state.waiting.pop_front()
                {
                    state.aside.push_back(element);
                }
                if !state.aside.is_empty() || self.clock.now() >= until {
                    return Ok(Drained { from: state.from, elements: state.aside.iter().cloned().collect() });
                }
            }
            self.clock.sleep_until(until).await;
        }
    }

    async fn drained(&self, _list: &str, from: u64, count: usize) -> Result<DrainReply, StoreError> {
        let mut state = self.state.lock().unwrap();
        state.removals += 1;
        if state.removals % 2 == 1 {
            return Err(StoreError::Unknown("the drainer died before it could remove them".to_owned()));
        }
        assert_eq!(from, state.from);
        state.aside.drain(..count);
        state.from += count as u64;
        Ok(DrainReply::Removed { next: state.from })
    }

    async fn waiting(&self, _list: &str) -> Result<u64, StoreError> {
        let state = self.state.lock().unwrap();
        Ok((state.waiting.len() + state.aside.len()) as u64)
    }

    async fn lead(&self, _list: &str, drainer: &str, lease: Duration, until: Timestamp) -> Result<bool, StoreError> {
        loop {
            let other_until = {
                let (mut state, now) = (self.state.lock().unwrap(), self.clock.now());
                match &state.leader {
                    Some((leader, lease_end)) if leader != drainer && *lease_end > now => *lease_end,
                    _ => {
                        state.leader = Some((drainer.to_owned(), now + lease));
                        return Ok(true);
                    }
                }
            };
            if self.clock.now() >= until {
                return Ok(false);
            }
            self.clock.sleep_until(other_until.min(until)).await;
        }
    }

    async fn resign(&self, _list: &str, drainer: &str) -> Result<(), StoreError> {
        self.state.lock().unwrap().leader.take_if(|(leader, _)| leader == drainer);
        Ok(())
    }
}

#[tokio::test]
async fn what_old_producers_push_is_taken_once_and_what_cannot_be_read_is_kept_as_it_is() {
    let clock = VirtualClock::new();
    let list = Arc::new(List { clock: clock.clone(), state: Mutex::default() });
    for n in 0..250 {
        let message = json!({"channel": "telegram", "external_chat_id": "1", "text": n.to_string(), "debounce_seconds": -3});
        list.state.lock().unwrap().waiting.push_back(message.to_string().into());
    }
    list.state.lock().unwrap().waiting.insert(7, Bytes::from_static(b"{\"text\": \xff"));
    list.state.lock().unwrap().waiting.insert(9, Bytes::from_static(b"{\"text\": \"nobody\"}"));
    let towpath = Towpath::builder().clock(Arc::new(clock.clone())).batch_source(list.clone()).open("memory:").await.unwrap();
    let patch = SettingsPatch {
        sources: Some(vec![Source { list: "queue:incoming".to_owned() }]),
        max_messages: Some(1_000),
        ..Default::default()
    };
    let name = towpath::batches::BatcherName::new("input_contour").unwrap();
    towpath.batchers().define_here(&Batcher::from_patch(name, patch).unwrap());
    assert_eq!(towpath.batch("input_contour").incoming().await.unwrap(), 252);
    let serving = towpath.serve_batches(Arc::new(FunctionReceiver::new(towpath.clone())), seconds(1));
    crate::support::in_time(async {
        while list.state.lock().unwrap().from < 252 {
            clock.advance(seconds(1));
            tokio::task::yield_now().await;
        }
    })
    .await;
    let open = towpath.batch("input_contour").open(None, 10).await.unwrap().items;
    let batch = towpath.batch("input_contour");
    let first = batch.show(&open[0].key).await.unwrap().unwrap().messages;
    let rest = batch.show_from(&open[0].key, first.len() as u64).await.unwrap().unwrap().messages;
    let texts: Vec<String> = first
        .iter()
        .chain(&rest)
        .map(|one| serde_json::from_slice::<Value>(one.as_bytes()).unwrap()["text"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(texts, (0..250).map(|n| n.to_string()).collect::<Vec<_>>());
    let letters = towpath.dead_letters().list(&DeadLetterQuery { limit: 10, ..DeadLetterQuery::default() }).await.unwrap().items;
    let reasons: Vec<_> = letters.iter().map(|(_, letter)| letter.reason.clone().unwrap()).collect();
    assert_eq!(reasons, ["parse_error", "missing_field"]);
    assert_eq!(towpath.batch("input_contour").incoming().await.unwrap(), 0);
    serving.stop().await;
    assert_eq!(list.state.lock().unwrap().leader, None, "whoever stops leaves its place to others");
    towpath.close().await;
}
