//! Whose turn it is: what a node hears on its channel.

use async_trait::async_trait;
use towpath_core::names::WaiterId;
use towpath_core::store::{LockNews, LockWakes};

use crate::listening::{ChannelEar, Spoken};

/// The ear of one node.
pub(super) struct NodesEar(pub(super) ChannelEar);

#[async_trait]
impl LockWakes for NodesEar {
    async fn next(&mut self) -> LockNews {
        loop {
            match self.0.next().await {
                Spoken::Doubtful => return LockNews::Doubtful,
                Spoken::Message(message) => {
                    // The key, a space, who waits.
                    let waiter = message.rsplit_once(' ').and_then(|(_, waiter)| WaiterId::try_from(waiter.to_owned()).ok());
                    if let Some(waiter) = waiter {
                        return LockNews::Turn(waiter);
                    }
                }
            }
        }
    }
}
