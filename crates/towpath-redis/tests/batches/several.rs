//! Several servers that share one Redis: each batch goes once, all hear of deadlines and of settings.

use std::time::Duration;

use futures_util::future::join_all;
use towpath_conformance::words::{MessageWords, batcher, claim_batch, json, message};
use towpath_core::batch::{ClaimReply, Rules};
use towpath_core::store::{BatchNews, BatchStore};
use towpath_redis::RedisStore;

use crate::rig::{Rig, accepted, both_layouts, ingest, input_contour, open};

const SERVERS: usize = 3;
const KEYS: usize = 300;

async fn servers(rig: &Rig) -> Vec<RedisStore> {
    let url = rig.server.url();
    join_all((0..SERVERS).map(|_| open(&url))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn three_servers_claim_every_batch_once() {
    let rig = Rig::start();
    let servers = servers(&rig).await;
    for of in both_layouts() {
        let all = (0..KEYS).map(|key| message(&format!("k-{key}"), "1").immediate()).collect();
        servers[0].batch_ingest(&of, &Rules::default(), all).await.unwrap();
        let claim = |(number, store): (usize, RedisStore)| {
            let of = of.clone();
            tokio::spawn(async move {
                let claims = (0..KEYS).map(|key| claim_batch(&of, &format!("k-{key}"), &format!("b-{number}-{key}"), &Rules::default()));
                let replies = join_all(claims.map(|want| store.batch_claim(want))).await;
                replies.into_iter().filter(|reply| matches!(reply, Ok(ClaimReply::Claimed(_)))).count()
            })
        };
        let claimed = join_all(servers.iter().cloned().enumerate().map(claim)).await;
        assert_eq!(claimed.into_iter().map(Result::unwrap).sum::<usize>(), KEYS);
        assert_eq!(servers[0].batch_counts(&of).await.unwrap().in_flight, KEYS as u64);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_sleeps_hears_of_an_earlier_deadline_wherever_the_message_came_in() {
    let rig = Rig::start();
    let servers = servers(&rig).await;
    let mut ear = servers[1].batch_wakes(&input_contour());
    servers[1].batch_counts(&input_contour()).await.unwrap();
    accepted(ingest(&servers[0], &batcher("other"), message("k", "1")).await);
    let due = accepted(ingest(&servers[0], &input_contour(), message("k", "1")).await);
    let heard = async {
        loop {
            match ear.next().await {
                BatchNews::Due(at) => return at,
                BatchNews::Doubtful => {}
            }
        }
    };
    assert_eq!(tokio::time::timeout(Duration::from_secs(5), heard).await, Ok(due));
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_one_server_puts_are_known_to_all_within_a_second() {
    let rig = Rig::start();
    let servers = servers(&rig).await;
    let mut seen = 0;
    for round in 1..=5 {
        let far = servers[1].clock().now() + Duration::from_secs(600);
        let follow = servers[1..].iter().cloned().map(|store| tokio::spawn(async move { store.batchers_changed(seen, far).await }));
        let follow: Vec<_> = follow.collect();
        let settings = json(&format!(r#"{{"debounce_seconds": {round}}}"#));
        let put = servers[0].put_batcher(&input_contour().name, settings).await.unwrap();
        assert_eq!((put.created, put.stored.version), (round == 1, round));
        for following in follow {
            let heard = tokio::time::timeout(Duration::from_secs(1), following).await.expect("a second is enough");
            assert_eq!(heard.unwrap(), Ok(round));
        }
        assert_eq!(servers[2].batcher(&input_contour().name).await.unwrap(), Some(put.stored));
        seen = round;
    }
}
