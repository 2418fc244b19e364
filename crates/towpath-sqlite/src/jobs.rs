//! Moves as the writer is asked for them: what is run in a transaction, and where the reply goes.

use tokio::sync::oneshot;
use towpath_core::store::StoreError;

use crate::trouble::Moved;
use crate::writer::{Order, Tx};

/// A move, run inside a transaction and answered after its commit. It may run more than once, when an earlier transaction was rolled back.
pub(crate) trait Job: Send {
    fn run(&mut self, tx: &mut Tx<'_>) -> Moved<()>;
    fn answer(self: Box<Self>, error: Option<StoreError>);
}

struct Move<F, R> {
    run: F,
    reply: Option<R>,
    to: oneshot::Sender<Result<R, StoreError>>,
}

impl<F, R> Job for Move<F, R>
where
    F: FnMut(&mut Tx<'_>) -> Moved<R> + Send,
    R: Send,
{
    fn run(&mut self, tx: &mut Tx<'_>) -> Moved<()> {
        self.reply = Some((self.run)(tx)?);
        Ok(())
    }

    fn answer(self: Box<Self>, error: Option<StoreError>) {
        let nothing = || StoreError::Unknown("the move was committed but left no reply".to_owned());
        let Self { reply, to, .. } = *self;
        let _nobody_waits_any_more = to.send(match error {
            Some(error) => Err(error),
            None => reply.ok_or_else(nothing),
        });
    }
}

/// A move that is answered as soon as it is applied, before the commit that keeps it. When that commit fails the move runs again, and who
/// asked has heard what the first run said.
struct EarlyMove<F, R> {
    run: F,
    to: Option<oneshot::Sender<Result<R, StoreError>>>,
}

impl<F, R> Job for EarlyMove<F, R>
where
    F: FnMut(&mut Tx<'_>) -> Moved<R> + Send,
    R: Send,
{
    fn run(&mut self, tx: &mut Tx<'_>) -> Moved<()> {
        let reply = (self.run)(tx)?;
        if let Some(to) = self.to.take() {
            let _nobody_waits_any_more = to.send(Ok(reply));
        }
        Ok(())
    }

    fn answer(self: Box<Self>, error: Option<StoreError>) {
        if let (Some(to), Some(error)) = (self.to, error) {
            let _nobody_waits_any_more = to.send(Err(error));
        }
    }
}

/// Makes a job that is answered before its commit, and the place where its reply arrives.
pub(crate) fn early_job<R: Send + 'static>(
    run: impl FnMut(&mut Tx<'_>) -> Moved<R> + Send + 'static,
) -> (Order, oneshot::Receiver<Result<R, StoreError>>) {
    let (to, reply) = oneshot::channel();
    (Order::Job(Box::new(EarlyMove { run, to: Some(to) })), reply)
}

/// Makes a job, and the place where its reply arrives.
pub(crate) fn job<R: Send + 'static>(
    run: impl FnMut(&mut Tx<'_>) -> Moved<R> + Send + 'static,
) -> (Order, oneshot::Receiver<Result<R, StoreError>>) {
    let (to, reply) = oneshot::channel();
    (Order::Job(Box::new(Move { run, reply: None, to })), reply)
}
