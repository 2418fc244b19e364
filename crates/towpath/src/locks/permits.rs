//! Questions for units of a semaphore, and for reading or writing, in the making.

use std::time::Duration;

use towpath_core::lock::check_within;
use towpath_core::names::LockScope;
use towpath_core::permit::{AcquirePermit, PermitKind, RW_LIMIT};

use super::builder::{LockWait, Wish, acquire, wishes};
use super::question::Question;
use super::switchboard::new_request;
use super::{Acquired, LockError};
use crate::Towpath;

const LIMIT_MAX: u32 = 1_000_000_000;
const WEIGHT_MAX: u32 = 1_000_000;

/// Units of a semaphore to be.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use towpath::locks::{Acquired, LockWait};
/// use towpath::Towpath;
///
/// let towpath = Towpath::open("memory:").await?;
/// let Acquired::Granted(gpus) = towpath.semaphore("gpu").limit(4).weight(3).acquire().await? else { panic!("four are free") };
/// let second = towpath.semaphore("gpu").limit(4).weight(2).wait(LockWait::No).acquire().await?;
/// assert!(matches!(second, Acquired::Held(_)), "only one is left");
/// gpus.release().await?;
/// # towpath.close().await;
/// # Ok(())
/// # }
/// ```
#[must_use = "units are asked for by `acquire`"]
#[derive(Clone, Debug)]
pub struct SemaphoreBuilder {
    towpath: Towpath,
    scope: String,
    wish: Wish,
    limit: u32,
    weight: u32,
}

/// A read/write lock to be: many readers, or one writer. Nobody passes a writer that waits. A reader cannot become a writer.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use towpath::locks::{Acquired, LockWait};
/// use towpath::Towpath;
///
/// let towpath = Towpath::open("memory:").await?;
/// let one = towpath.rw("catalog").read().await?.granted().expect("free");
/// let two = towpath.rw("catalog").read().await?.granted().expect("readers join readers");
/// assert!(matches!(towpath.rw("catalog").wait(LockWait::No).write().await?, Acquired::Held(_)));
/// # drop((one, two));
/// # towpath.close().await;
/// # Ok(())
/// # }
/// ```
#[must_use = "it is asked for by `read` or `write`"]
#[derive(Clone, Debug)]
pub struct RwBuilder {
    towpath: Towpath,
    scope: String,
    wish: Wish,
}

wishes!(SemaphoreBuilder);
wishes!(RwBuilder);

impl Towpath {
    /// A semaphore on a scope: as many units at once as its limit says, among all processes that use this store. All who share it should
    /// name the same limit.
    pub fn semaphore(&self, scope: impl Into<String>) -> SemaphoreBuilder {
        SemaphoreBuilder { towpath: self.clone(), scope: scope.into(), wish: Wish::default(), limit: 1, weight: 1 }
    }

    /// A read/write lock on a scope.
    pub fn rw(&self, scope: impl Into<String>) -> RwBuilder {
        RwBuilder { towpath: self.clone(), scope: scope.into(), wish: Wish::default() }
    }
}

impl SemaphoreBuilder {
    /// How many units there are. Default: 1.
    pub fn limit(mut self, units: u32) -> Self {
        self.limit = units;
        self
    }

    /// How many are wanted. Default: 1.
    pub fn weight(mut self, units: u32) -> Self {
        self.weight = units;
        self
    }

    /// Asks, and waits if it may. Dropping the future takes the question back.
    pub async fn acquire(self) -> Result<Acquired, LockError> {
        check_within("limit", self.limit, 1, LIMIT_MAX)?;
        check_within("weight", self.weight, 1, WEIGHT_MAX)?;
        let Self { towpath, scope, wish, limit, weight } = self;
        ask(&towpath, PermitKind::Semaphore, &scope, &wish, limit, weight).await
    }
}

impl RwBuilder {
    /// Asks to read.
    pub async fn read(self) -> Result<Acquired, LockError> {
        ask(&self.towpath, PermitKind::ReadWrite, &self.scope, &self.wish, RW_LIMIT, 1).await
    }

    /// Asks to write.
    pub async fn write(self) -> Result<Acquired, LockError> {
        ask(&self.towpath, PermitKind::ReadWrite, &self.scope, &self.wish, RW_LIMIT, RW_LIMIT).await
    }
}

async fn ask(towpath: &Towpath, kind: PermitKind, scope: &str, wish: &Wish, limit: u32, weight: u32) -> Result<Acquired, LockError> {
    let request_id = new_request(towpath.ids().as_ref());
    let mut want = AcquirePermit::new(kind, LockScope::new(scope)?, wish.lock_id(&request_id)?, limit);
    want.weight = weight;
    (want.lease, want.max_hold) = (wish.lease()?, wish.ttl);
    want.execution_id = wish.execution_id.as_deref().map(str::parse).transpose()?;
    let wait = wish.wait()?;
    want.waiter = wait.map(|_| towpath.waiter(&request_id));
    acquire(towpath, Question::Permit(want), wait, wish.renews).await
}
