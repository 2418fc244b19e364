//! One side of a measurement on one thread, as the sides of the floor are: what is compared is the work, and not how many threads share it.

use std::future::Future;
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use super::failed;
use crate::cli::failure::Failure;

/// Does work in a runtime of its own that has one thread. Given up, it ends before this returns.
pub(super) async fn on_one_thread<F, T>(work: impl FnOnce() -> F + Send + 'static) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
    T: Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed(&format!("the process cannot start a thread: {error}")))?;
    let (tell, done) = oneshot::channel();
    let (stop, stopped) = oneshot::channel();
    let thread = std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                biased;
                _given_up = stopped => {}
                result = work() => drop(tell.send(result)),
            }
        });
    });
    let _until_it_is_over = Side { stop: Some(stop), thread: Some(thread) };
    done.await.map_err(|_| failed("one side of the measurement broke off"))?
}

/// A thread that is told to stop, and waited for, when its owner drops it.
struct Side {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Side {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _it_has_said_why = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[tokio::test]
    async fn what_comes_of_it_comes_back() {
        assert_eq!(on_one_thread(|| async { Ok(7) }).await.ok(), Some(7));
        assert!(on_one_thread(|| async { Err::<(), _>(failed("no")) }).await.is_err());
    }

    #[tokio::test]
    async fn work_that_is_given_up_has_ended() {
        struct Ends(Arc<AtomicBool>);
        impl Drop for Ends {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Release);
            }
        }
        let ended = Arc::new(AtomicBool::new(false));
        let (begun, has_begun) = oneshot::channel();
        let ends = Ends(Arc::clone(&ended));
        let work = on_one_thread(move || async move {
            let _ends = ends;
            let _the_waiter_may_be_gone = begun.send(());
            std::future::pending::<Result<(), Failure>>().await
        });
        tokio::select! {
            _never = work => panic!("it waits forever"),
            begun = has_begun => begun.expect("it has begun"),
        }
        assert!(ended.load(Ordering::Acquire));
    }
}
