//! Towpath's store on Redis or Valkey: streams that old peers understand, and one script per transition.
//!
//! | room | what it does |
//! |---|---|
//! | `options` | what a URL says: where the server is, who we are there, what an acknowledgement shall be worth |
//! | `link` | connections: the shared one, exclusive ones for blocking reads, what to do when they break |
//! | `keys` | every key, built in one place |
//! | `record` | how a call is written down |
//! | `script` | the Lua files and what they are handed |
//! | `store` | what an open store is made of |
//! | `calls` | submit, claim, renew, answer, and all other moves of a call |
//! | `registry` | functions, workers, the shared configuration |
//! | `timers` | what happens by itself |
//! | `inspect` | reads for people |
//! | `floor` | the bare programs that the store is measured against |

pub mod floor;
mod keys;
mod link;
mod options;
mod store;

pub use options::{Address, InvalidRedisUrl, Place, RedisOptions, Tls};
pub use store::RedisStore;
