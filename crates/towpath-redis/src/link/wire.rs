//! One connection on which requests are sent one after the other without waiting, and what is left of it when it breaks.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisConnectionInfo, RedisResult, Value};
use tokio_util::task::AbortOnDropHandle;
use towpath_core::store::StoreError;

use super::dial::Greeted;
use super::error;
use crate::options::Address;

/// A connection. Dropping it closes it at once, also while a read blocks on the server.
pub(super) struct Wire {
    pub(super) address: Address,
    connection: MultiplexedConnection,
    driver: AbortOnDropHandle<()>,
}

impl Wire {
    /// With a limit, a reply that does not come in time is an error.
    pub(super) async fn new(address: &Address, greeted: Greeted, answer_within: Option<Duration>) -> Result<Self, StoreError> {
        let config = AsyncConnectionConfig::new().set_response_timeout(answer_within);
        let made = MultiplexedConnection::new_with_config(&already_greeted(), greeted.stream, config).await;
        let (connection, driver) = made.map_err(|failure| error::not_reached(address, &failure.to_string()))?;
        let driver = AbortOnDropHandle::new(tokio::spawn(driver));
        Ok(Self { address: address.clone(), connection, driver })
    }

    /// The peer has closed it: what is sent now certainly does not arrive.
    pub(super) fn is_over(&self) -> bool {
        self.driver.is_finished()
    }

    /// Sends all at once and brings as many replies, in order.
    pub(super) async fn send(&self, commands: &[Cmd]) -> RedisResult<Vec<Value>> {
        let mut connection = self.connection.clone();
        if let [command] = commands {
            return connection.send_packed_command(command).await.map(|reply| vec![reply]);
        }
        let mut pipeline = Pipeline::with_capacity(commands.len());
        for command in commands {
            pipeline.add_command(command.clone());
        }
        connection.send_packed_commands(&pipeline, 0, commands.len()).await
    }
}

/// What the redis crate shall do on a new connection: nothing, it has been done.
pub(super) fn already_greeted() -> RedisConnectionInfo {
    RedisConnectionInfo::default().set_skip_set_lib_name()
}
