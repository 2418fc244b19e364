//! Towpath's store on Redis or Valkey: streams that old peers understand, and one script per transition.
//!
//! | room | what it does |
//! |---|---|
//! | `options` | what a URL says: where the server is, who we are there, what an acknowledgement shall be worth |
//! | `link` | connections: the shared one, exclusive ones for blocking reads, what to do when they break |
//! | `clock` | the server's time, carried on by the local clock |
//! | `about` | what the server says about itself |
//! | `durability` | what an acknowledgement is worth, and who has confirmed it |
//! | `doctor` | what is right and wrong with a Redis, and what to do |
//! | `acl` | every command that is sent, and the user that may send no other |
//! | `keys` | every key, built in one place |
//! | `record` | how a call is written down |
//! | `script` | the Lua files and what they are handed |
//! | `store` | what an open store is made of |
//! | `calls` | submit, claim, renew, answer, and all other moves of a call |
//! | `registry` | functions, workers, the shared configuration |
//! | `timers` | what happens by itself |
//! | `inspect` | reads for people |

mod about;
mod acl;
mod clock;
pub mod doctor;
mod durability;
mod keys;
mod link;
mod options;
mod store;

pub use acl::acl_rule;
pub use clock::ServerClock;
pub use durability::Unfit;
pub use options::{Address, InvalidRedisUrl, Place, RedisOptions, Tls};
pub use store::RedisStore;
