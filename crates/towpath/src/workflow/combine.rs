//! Waiting for several steps at once, in the same order at each replay.

use std::future::{Future, IntoFuture, poll_fn};
use std::pin::pin;
use std::task::Poll;

use futures_util::future;

/// One of two results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Either<A, B> {
    /// The first one's.
    First(A),
    /// The second one's.
    Second(B),
}

/// Waits for the first of two. The other one is dropped. If both have ended, the first one counts.
pub async fn race<A: IntoFuture, B: IntoFuture>(first: A, second: B) -> Either<A::Output, B::Output> {
    let (mut first, mut second) = (pin!(first.into_future()), pin!(second.into_future()));
    poll_fn(|cx| {
        if let Poll::Ready(output) = first.as_mut().poll(cx) {
            return Poll::Ready(Either::First(output));
        }
        second.as_mut().poll(cx).map(Either::Second)
    })
    .await
}

/// Waits for the first of several steps and drops the others. Replay picks the same one: the one whose result the journal has first.
///
/// ```
/// use std::time::Duration;
/// use towpath::HandlerError;
/// use towpath::workflow::{Event, WorkflowContext};
///
/// static APPROVED: Event<bool> = Event::new("approved");
///
/// async fn approval(_input: (), ctx: WorkflowContext) -> Result<bool, HandlerError> {
///     let granted = towpath::select! {
///         granted = ctx.event(&APPROVED) => granted?,
///         slept = ctx.sleep(Duration::from_secs(86_400)) => {
///             slept?;
///             false
///         },
///     };
///     Ok(granted)
/// }
/// # let _ = approval;
/// ```
#[macro_export]
macro_rules! select {
    (@race $future:expr) => { $future };
    (@race $future:expr, $($rest:expr),+) => { $crate::workflow::race($future, $crate::select!(@race $($rest),+)) };
    (@take $output:expr; $pattern:pat => $body:expr) => {
        match $output { $pattern => $body }
    };
    (@take $output:expr; $pattern:pat => $body:expr, $($rest:tt)+) => {
        match $output {
            $crate::workflow::Either::First($pattern) => $body,
            $crate::workflow::Either::Second(rest) => $crate::select!(@take rest; $($rest)+),
        }
    };
    ($($pattern:pat = $future:expr => $body:expr),+ $(,)?) => {{
        let output = ::std::future::IntoFuture::into_future($crate::select!(@race $($future),+)).await;
        $crate::select!(@take output; $($pattern => $body),+)
    }};
}

/// Waits for all of two to five steps. Gives a tuple of what they gave.
///
/// ```
/// use towpath::HandlerError;
/// use towpath::workflow::{TaskContext, WorkflowContext};
///
/// async fn double(number: u64, _task: TaskContext) -> Result<u64, HandlerError> {
///     Ok(2 * number)
/// }
///
/// async fn both(_input: (), ctx: WorkflowContext) -> Result<u64, HandlerError> {
///     let (one, two) = towpath::join!(ctx.task("double", &1, double), ctx.task("double", &2, double));
///     Ok(one? + two?)
/// }
/// # let _ = both;
/// ```
#[macro_export]
macro_rules! join {
    ($a:expr, $b:expr $(,)?) => {
        $crate::workflow::combine::join2($a, $b).await
    };
    ($a:expr, $b:expr, $c:expr $(,)?) => {
        $crate::workflow::combine::join3($a, $b, $c).await
    };
    ($a:expr, $b:expr, $c:expr, $d:expr $(,)?) => {
        $crate::workflow::combine::join4($a, $b, $c, $d).await
    };
    ($a:expr, $b:expr, $c:expr, $d:expr, $e:expr $(,)?) => {
        $crate::workflow::combine::join5($a, $b, $c, $d, $e).await
    };
}

/// Waits for all of two to four steps, or for the first that fails: the others are dropped then.
///
/// ```
/// use towpath::HandlerError;
/// use towpath::workflow::{TaskContext, WorkflowContext};
///
/// async fn double(number: u64, _task: TaskContext) -> Result<u64, HandlerError> {
///     Ok(2 * number)
/// }
///
/// async fn both(_input: (), ctx: WorkflowContext) -> Result<u64, HandlerError> {
///     let (one, two) = towpath::try_join!(ctx.task("double", &1, double), ctx.task("double", &2, double))?;
///     Ok(one + two)
/// }
/// # let _ = both;
/// ```
#[macro_export]
macro_rules! try_join {
    ($a:expr, $b:expr $(,)?) => {
        $crate::workflow::combine::try_join2($a, $b).await
    };
    ($a:expr, $b:expr, $c:expr $(,)?) => {
        $crate::workflow::combine::try_join3($a, $b, $c).await
    };
    ($a:expr, $b:expr, $c:expr, $d:expr $(,)?) => {
        $crate::workflow::combine::try_join4($a, $b, $c, $d).await
    };
}

/// What `join!` of two awaits.
#[doc(hidden)]
pub async fn join2<A: IntoFuture, B: IntoFuture>(a: A, b: B) -> (A::Output, B::Output) {
    future::join(a.into_future(), b.into_future()).await
}

/// What `join!` of three awaits.
#[doc(hidden)]
pub async fn join3<A: IntoFuture, B: IntoFuture, C: IntoFuture>(a: A, b: B, c: C) -> (A::Output, B::Output, C::Output) {
    future::join3(a.into_future(), b.into_future(), c.into_future()).await
}

/// What `join!` of four awaits.
#[doc(hidden)]
pub async fn join4<A: IntoFuture, B: IntoFuture, C: IntoFuture, D: IntoFuture>(
    a: A,
    b: B,
    c: C,
    d: D,
) -> (A::Output, B::Output, C::Output, D::Output) {
    future::join4(a.into_future(), b.into_future(), c.into_future(), d.into_future()).await
}

/// What `join!` of five awaits.
#[doc(hidden)]
pub async fn join5<A: IntoFuture, B: IntoFuture, C: IntoFuture, D: IntoFuture, E: IntoFuture>(
    a: A,
    b: B,
    c: C,
    d: D,
    e: E,
) -> (A::Output, B::Output, C::Output, D::Output, E::Output) {
    future::join5(a.into_future(), b.into_future(), c.into_future(), d.into_future(), e.into_future()).await
}

/// What `try_join!` of two awaits.
#[doc(hidden)]
pub async fn try_join2<A, B, T, U, X>(a: A, b: B) -> Result<(T, U), X>
where
    A: IntoFuture<Output = Result<T, X>>,
    B: IntoFuture<Output = Result<U, X>>,
{
    future::try_join(a.into_future(), b.into_future()).await
}

/// What `try_join!` of three awaits.
#[doc(hidden)]
pub async fn try_join3<A, B, C, T, U, V, X>(a: A, b: B, c: C) -> Result<(T, U, V), X>
where
    A: IntoFuture<Output = Result<T, X>>,
    B: IntoFuture<Output = Result<U, X>>,
    C: IntoFuture<Output = Result<V, X>>,
{
    future::try_join3(a.into_future(), b.into_future(), c.into_future()).await
}

/// What `try_join!` of four awaits.
#[doc(hidden)]
pub async fn try_join4<A, B, C, D, T, U, V, W, X>(a: A, b: B, c: C, d: D) -> Result<(T, U, V, W), X>
where
    A: IntoFuture<Output = Result<T, X>>,
    B: IntoFuture<Output = Result<U, X>>,
    C: IntoFuture<Output = Result<V, X>>,
    D: IntoFuture<Output = Result<W, X>>,
{
    future::try_join4(a.into_future(), b.into_future(), c.into_future(), d.into_future()).await
}
