//! A drainer in a process of its own, which can be killed. It is this test program, started again for one test that finds its orders in the
//! environment.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use towpath_core::batch::{DeadLetter, IngestReply, Message, SourceId};
use towpath_core::store::{BatchSource, BatchStore};
use towpath_redis::RedisStore;

use crate::rig::{input_contour, open, settings};

const ORDERS: &str = "TOWPATH_TEST_DRAINER";
const ENTRANCE: &str = "drainer::a_drainer_that_cannot_reach_its_server_ends_with_an_error";

/// The list of the old producers.
pub(crate) const LIST: &str = "queue:incoming";
/// How many are taken aside at a time.
pub(crate) const AT_ONCE: usize = 50;

/// A process that drains. It is killed when this is dropped.
pub(crate) struct Drainer {
    child: Child,
}

impl Drainer {
    pub(crate) fn start(url: &str) -> Self {
        let program = std::env::current_exe().expect("this program has a file");
        let mut command = Command::new(program);
        command.args([ENTRANCE, "--exact", "--nocapture"]).env(ORDERS, url);
        // The end of its input tells it that the test is gone, however that ended.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Self { child: command.spawn().expect("this program starts again") }
    }

    fn succeeds(mut self) -> bool {
        // Its input stays open: its end would end the drainer.
        let _input = self.child.stdin.take();
        self.child.wait().expect("it is our child").success()
    }
}

impl Drop for Drainer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Entered by processes that [`Drainer::start`] has started.
#[test]
fn a_drainer_that_cannot_reach_its_server_ends_with_an_error() {
    let Ok(url) = std::env::var(ORDERS) else {
        assert!(!Drainer::start("redis://127.0.0.1:1").succeeds());
        return;
    };
    std::thread::spawn(|| {
        let _the_test_is_gone = std::io::stdin().read_line(&mut String::new());
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store = open(&url).await;
        loop {
            drain_once(&store, Duration::from_secs(5)).await;
        }
    });
}

/// Takes elements in, each under its number, and puts them away. How many there were.
pub(crate) async fn drain_once(store: &RedisStore, wait: Duration) -> usize {
    let drained = store.drain(LIST, AT_ONCE, wait).await.expect("the server is there");
    let (settings, of, mut messages) = (settings(), input_contour(), Vec::new());
    for (number, element) in (drained.from..).zip(&drained.elements) {
        let source = SourceId { list: LIST.into(), number };
        match settings.message(Message::new(element.clone()), Some(source.clone())) {
            Ok(read) => messages.push(read.message),
            Err(bad) => {
                let now = store.clock().now();
                let letter = DeadLetter::unreadable(&of.name, element, Some(&source), bad.dead_reason(), &bad.to_string(), now);
                store.dead_letter_add(&of, letter, Some(source)).await.expect("the server is there");
            }
        }
    }
    let replies = store.batch_ingest(&of, &settings.rules(), messages).await.expect("the server is there");
    assert!(replies.iter().all(|reply| !matches!(reply, IngestReply::Full { .. })), "there is room");
    store.drained(LIST, drained.from, drained.elements.len()).await.expect("the server is there");
    drained.elements.len()
}
