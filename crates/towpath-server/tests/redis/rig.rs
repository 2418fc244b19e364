//! Servers on a Redis of the test's own.

use tempfile::TempDir;
use towpath_redis_testing::RedisServer;

use crate::support::Server;

/// A Redis that has on its disk whatever it has acknowledged.
pub(crate) fn durable_redis() -> RedisServer {
    RedisServer::build().append_only("always").start()
}

/// A Redis that has on its disk whatever it has acknowledged a second ago: as little as a server is content with.
pub(crate) fn everysec_redis() -> RedisServer {
    RedisServer::build().append_only("everysec").start()
}

/// `towpath serve` on a store, at a free port.
pub(crate) fn serve(store: &str) -> Server {
    serve_at(store, tempfile::tempdir().unwrap(), "127.0.0.1:0")
}

/// The same, where another was before.
pub(crate) fn serve_at(store: &str, folder: TempDir, listen: &str) -> Server {
    Server::start_with(folder, &["serve", "--store", store, "--listen", listen])
}
