//! Claims that wait, first come first served, and the readers that block for them: one connection per function, whoever waits.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use towpath_core::names::{FunctionKey, WorkerId};
use towpath_core::store::{ClaimCalls, Delivery, StoreError};

use super::entry::{self, Entry};
use super::take::{is_no_group, read_command};
use crate::pause::pause;
use crate::room::Room;
use crate::store::RedisStore;

/// How long one read blocks. A read that waits costs nothing; that its server is gone is noticed by the connection, and that it was
/// forgotten on the way by the next nudge, which every new connection and every call that a sweep finds brings.
const BLOCK: Duration = Duration::from_secs(300);
/// A claim that waits no longer than this looks first for what is there already.
const WAITS_ANYWAY: Duration = Duration::from_secs(1);
/// The first wait before a reader that met trouble tries again; it doubles up to the last.
const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_LAST: Duration = Duration::from_secs(1);

/// The claims of this process that wait.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<Line>,
}

#[derive(Default)]
struct Line {
    last_ticket: u64,
    claims: VecDeque<WaitingClaim>,
}

struct WaitingClaim {
    ticket: u64,
    want: Arc<ClaimCalls>,
    served: oneshot::Sender<Vec<Delivery>>,
}

impl WaitingClaim {
    fn wants(&self, function: &FunctionKey) -> bool {
        self.want.functions.iter().any(|wanted| wanted.max > 0 && wanted.function == *function)
    }
}

/// A place in the queue. Dropping it leaves the queue, and gives back what was claimed for it but never taken.
struct Turn {
    store: RedisStore,
    ticket: u64,
    want: Arc<ClaimCalls>,
    served: oneshot::Receiver<Vec<Delivery>>,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Line> {
        // Nothing in here can panic half way.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those who wait for calls of this function, in their order.
    fn waiting_for(&self, function: &FunctionKey) -> Vec<(u64, Arc<ClaimCalls>)> {
        let line = self.lock();
        line.claims.iter().filter(|claim| claim.wants(function)).map(|claim| (claim.ticket, Arc::clone(&claim.want))).collect()
    }

    fn is_waited_for(&self, function: &FunctionKey) -> bool {
        self.lock().claims.iter().any(|claim| claim.wants(function))
    }

    /// Hands deliveries to the one that waits under this ticket, or gives them back when it no longer does.
    fn serve(&self, ticket: u64, deliveries: Vec<Delivery>) -> Result<(), Vec<Delivery>> {
        let mut line = self.lock();
        let Some(place) = line.claims.iter().position(|claim| claim.ticket == ticket) else { return Err(deliveries) };
        let Some(claim) = line.claims.remove(place) else { return Err(deliveries) };
        claim.served.send(deliveries)
    }

    /// Ends all claims of a worker that let a lease run out: it may be gone, and shall not be given more until it asks again.
    pub(crate) fn dismiss(&self, worker: &WorkerId) {
        let mut line = self.lock();
        let (dismissed, stay) = std::mem::take(&mut line.claims).into_iter().partition(|claim| claim.want.worker == *worker);
        line.claims = stay;
        for claim in Vec::<WaitingClaim>::from_iter::<VecDeque<WaitingClaim>>(dismissed) {
            drop(claim.served.send(Vec::new()));
        }
    }
}

impl RedisStore {
    pub(crate) async fn claim_or_wait(&self, want: ClaimCalls) -> Result<Vec<Delivery>, StoreError> {
        if want.max == 0 || want.functions.is_empty() {
            return Ok(Vec::new());
        }
        for wanted in &want.functions {
            self.check_place(&wanted.function)?;
        }
        let until = self.shared.now() + want.wait;
        // Whoever waits for one function anyway finds what is there by waiting for it.
        if want.functions.len() > 1 || want.wait < WAITS_ANYWAY || self.room(&want.functions[0].function).shards() > 0 {
            let taken = self.take_beside(want.clone()).await?;
            if !taken.is_empty() || want.wait.is_zero() {
                return Ok(taken);
            }
        }
        let mut turn = self.queue_up(want);
        tokio::select! {
            biased;
            served = &mut turn.served => Ok(served.unwrap_or_default()),
            () = self.shared.clock.sleep_until(until) => Ok(Vec::new()),
        }
    }

    /// Takes in a task of its own: whoever goes away half way gets nothing, and what was taken for it is given back.
    async fn take_beside(&self, want: ClaimCalls) -> Result<Vec<Delivery>, StoreError> {
        let (sender, receiver) = oneshot::channel();
        let store = self.clone();
        tokio::spawn(async move {
            let taken = store.take_now(&want).await;
            if taken.is_err() {
                let rooms = want.functions.iter().flat_map(|wanted| store.shards(&wanted.function));
                rooms.for_each(|room| store.sweep_for(&room, &want.worker));
            }
            if let Err(Ok(never_wanted)) = sender.send(taken) {
                store.give_back(&want.worker, never_wanted).await;
            }
        });
        receiver.await.unwrap_or_else(|_| Err(StoreError::Unknown("the claim was given up".to_owned())))
    }

    fn queue_up(&self, want: ClaimCalls) -> Turn {
        let (sender, served) = oneshot::channel();
        let want = Arc::new(want);
        let ticket = {
            let mut line = self.shared.queue.lock();
            line.last_ticket += 1;
            let ticket = line.last_ticket;
            line.claims.push_back(WaitingClaim { ticket, want: Arc::clone(&want), served: sender });
            ticket
        };
        let turn = Turn { store: self.clone(), ticket, want, served };
        for room in turn.want.functions.iter().flat_map(|wanted| self.shards(&wanted.function)) {
            self.start_reader(&room);
        }
        turn
    }

    /// A reader is at work for a function as long as somebody waits for its calls.
    fn start_reader(&self, room: &Arc<Room>) {
        if room.reading.swap(true, Ordering::AcqRel) {
            room.nudge();
            return;
        }
        let reader = Reader { store: self.clone(), room: Arc::clone(room), trouble: RETRY_FIRST };
        tokio::spawn(reader.run());
    }

    pub(crate) async fn give_back(&self, worker: &WorkerId, deliveries: Vec<Delivery>) {
        let ids = deliveries.into_iter().map(|delivery| delivery.id).collect();
        if let Err(error) = self.release_all(worker, ids).await {
            tracing::warn!(%worker, %error, "calls that nobody waited for any more could not be handed back; their leases will run out");
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.store.shared.queue.lock().claims.retain(|claim| claim.ticket != self.ticket);
        for wanted in &self.want.functions {
            // Its reader may be blocked on its behalf: it shall look who is first now.
            self.store.shards(&wanted.function).iter().for_each(|room| room.nudge());
        }
        if let Ok(never_taken) = self.served.try_recv()
            && !never_taken.is_empty()
        {
            let (store, worker) = (self.store.clone(), self.want.worker.clone());
            // Outside a runtime nothing can be given back; the leases run out.
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(async move { store.give_back(&worker, never_taken).await });
            }
        }
    }
}

/// Reads one function's stream on behalf of whoever waits first.
struct Reader {
    store: RedisStore,
    room: Arc<Room>,
    trouble: Duration,
}

impl Reader {
    async fn run(mut self) {
        if !self.room.read_before.swap(true, Ordering::AcqRel) {
            self.store.sweep_soon(&self.room); // after one that died, perhaps
        }
        loop {
            let nudges = self.room.nudges();
            if !self.store.shared.queue.is_waited_for(&self.room.function) && self.leave() {
                return;
            }
            match self.serve_one(nudges).await {
                Ok(()) => self.trouble = RETRY_FIRST,
                Err(error) => self.recover(&error).await,
            }
        }
    }

    /// Stops, unless somebody has queued up in this very moment.
    fn leave(&self) -> bool {
        self.room.reading.store(false, Ordering::Release);
        let nobody = !self.store.shared.queue.is_waited_for(&self.room.function);
        nobody || self.room.reading.swap(true, Ordering::AcqRel)
    }

    /// Looks outside the stream for everyone who waits, then blocks for the first who has room.
    async fn serve_one(&mut self, mut nudges: tokio::sync::watch::Receiver<u64>) -> Result<(), StoreError> {
        let mut first = None;
        for (ticket, want) in self.store.shared.queue.waiting_for(&self.room.function) {
            let count = wanted_of(&want, &self.room.function);
            let taken = self.store.take_outside(&self.room, &want, count).await?;
            if !taken.deliveries.is_empty() {
                self.hand_over(ticket, &want, taken.deliveries).await;
                return Ok(());
            }
            if taken.room_left > 0 {
                first = Some((ticket, want, taken.room_left));
                break;
            }
        }
        let Some((ticket, want, count)) = first else {
            // Nobody has room: a nudge says when that may have changed.
            drop(nudges.changed().await);
            return Ok(());
        };
        let entries = self.read(&want, count, nudges).await;
        if entries.is_err() {
            self.store.sweep_for(&self.room, &want.worker); // what the lost reply brought
        }
        let entries = entries?;
        if entries.is_empty() {
            return Ok(());
        }
        let taken = self.store.take_read(&self.room, &want, count, entries).await;
        if taken.is_err() {
            self.store.sweep_for(&self.room, &want.worker);
        }
        let taken = taken?;
        if !taken.deliveries.is_empty() {
            self.hand_over(ticket, &want, taken.deliveries).await;
        }
        Ok(())
    }

    async fn hand_over(&self, ticket: u64, want: &ClaimCalls, deliveries: Vec<Delivery>) {
        if let Err(never_wanted) = self.store.shared.queue.serve(ticket, deliveries) {
            self.store.give_back(&want.worker, never_wanted).await;
        }
    }

    /// Blocks until there are new entries, or until a nudge. The read itself is never dropped half way: what it brings is ours.
    async fn read(
        &mut self,
        want: &ClaimCalls,
        count: u64,
        mut nudges: tokio::sync::watch::Receiver<u64>,
    ) -> Result<Vec<Entry>, StoreError> {
        let link = &self.store.shared.link;
        let kept = self.room.kept_line().take();
        let mut line = match kept {
            Some(line) => line,
            None => link.exclusive(&self.room.keys.stream).await?,
        };
        let id = line.id();
        let command = read_command(&self.room, want, count, Some(BLOCK));
        let reply = {
            let read = line.read_blocking(&command, BLOCK);
            tokio::pin!(read);
            tokio::select! {
                biased;
                reply = &mut read => reply,
                _ = nudges.changed() => link.end(&id, read).await,
            }
        };
        match reply {
            Ok(reply) => {
                *self.room.kept_line() = Some(line);
                Ok(entry::read_streams_in(&reply))
            }
            Err(error) if is_no_group(&error) => {
                *self.room.kept_line() = Some(line);
                tracing::warn!(function = %self.room.function, "the consumer group was gone; it is made again, and what waits is read again");
                self.store.make_group(&self.room).await?;
                Ok(Vec::new())
            }
            Err(error) => Err(error),
        }
    }

    async fn recover(&mut self, error: &StoreError) {
        tracing::warn!(function = %self.room.function, %error, "reading calls failed; trying again");
        pause(self.trouble).await;
        self.trouble = (self.trouble * 2).min(RETRY_LAST);
    }
}

/// How many calls of this function somebody wants.
fn wanted_of(want: &ClaimCalls, function: &FunctionKey) -> u64 {
    let of_function = want.functions.iter().filter(|wanted| wanted.function == *function).map(|wanted| wanted.max).max();
    u64::from(of_function.unwrap_or_default().min(want.max))
}
