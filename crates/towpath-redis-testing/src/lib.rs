//! Redis servers of a test's own: one, with Sentinels, a Cluster, and a proxy that fails on command. And what locks protect.
//!
//! Everything is a process of the test and listens on a free port of the loopback. It ends with the test, also when the test panics or is
//! killed. Nothing is skipped: a program that is missing is a panic that says how to get it.

mod certificates;
mod cluster;
mod ports;
mod process;
mod proxy;
mod resource;
mod sentinel;
mod server;
mod waiting;

pub use cluster::ClusterRig;
pub use proxy::FaultProxy;
pub use resource::{Book, Resource, ResourceLink};
pub use sentinel::SentinelRig;
pub use server::{RedisServer, ServerBuilder};
pub use waiting::until;
