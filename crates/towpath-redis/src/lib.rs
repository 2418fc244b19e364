//! Towpath's store on Redis or Valkey: streams that old peers understand, and one script per transition.
//!
//! | room | what it does |
//! |---|---|
//! | `options` | what a URL says: where the server is, who we are there, what an acknowledgement shall be worth |
//! | `link` | connections: the shared one, exclusive ones for blocking reads, what to do when they break |
//! | `keys` | every key, built in one place |
//! | `record` | how a call is written down |
//! | `script` | the Lua files and what they are handed |
//! | `definition` | how functions and workers are written down |
//! | `news` | wake-ups between processes |
//! | `store` | what an open store is made of |
//! | `calls` | submit, claim, renew, answer, and all other moves of a call |
//! | `registry` | functions, workers, the shared configuration |
//! | `timers` | what happens by itself |
//! | `inspect` | reads for people |

mod agenda;
mod calls;
mod definition;
mod held;
mod inspect;
mod keys;
mod lane;
mod link;
mod news;
mod options;
mod pieces;
mod record;
mod registry;
mod room;
mod script;
mod store;
mod timers;
mod value;

pub use options::{Address, InvalidRedisUrl, Place, RedisOptions, Tls};
pub use store::RedisStore;
