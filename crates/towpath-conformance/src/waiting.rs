//! Something set going that may have to wait: a claim, a watcher, a question with a deadline.

use std::future::Future;

use tokio::task::{AbortHandle, JoinHandle};

/// It runs beside the case until it ends or is dropped.
pub struct Waiting<T> {
    task: JoinHandle<T>,
    abort: AbortOnDrop,
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<T: Send + 'static> Waiting<T> {
    pub(crate) fn start(work: impl Future<Output = T> + Send + 'static) -> Self {
        let task = tokio::spawn(work);
        let abort = AbortOnDrop(task.abort_handle());
        Self { task, abort }
    }

    /// Whether it has ended already.
    pub fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// Waits for its end. A case that waits for ever is stopped by the suite.
    pub async fn end(self) -> T {
        match self.task.await {
            Ok(result) => result,
            Err(error) => panic!("what was set going broke: {error}"),
        }
    }

    /// Drops it where it stands, as a caller that goes away does, and waits until it is gone.
    pub async fn give_up(self) {
        self.abort.0.abort();
        // Either way it is over; a result that came in the meantime went nowhere.
        drop(self.task.await);
    }
}
