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
//! | `record`, `pieces` | how a call is written down |
//! | `definition` | how functions and workers are written down |
//! | `script` | the Lua files and what they are handed |
//! | `value` | reading the server's replies |
//! | `store` | what an open store is made of |
//! | `room`, `lane` | what a process keeps in mind about a function; questions that go together |
//! | `calls` | submit, claim, renew, answer, and all other moves of a call |
//! | `locks` | locks, semaphores and read/write locks |
//! | `batches` | messages gathered per key, and the lists of old producers |
//! | `limits` | how many in how long, judged by one script |
//! | `held` | what this process's workers hold |
//! | `news`, `listening` | wake-ups between processes |
//! | `registry` | functions, workers, the shared configuration |
//! | `timers`, `agenda` | what happens by itself |
//! | `pages` | calls that are listed together |
//! | `presence` | noticing that somebody went away |
//! | `timing` | how soon it is looked for what goes wrong |
//! | `sweep` | short streams, and what fell between a stream and a worker |
//! | `inspect` | reads for people |
//! | `floor` | the bare programs that the store is measured against |

mod about;
mod acl;
mod agenda;
mod batches;
mod calls;
mod clock;
mod definition;
pub mod doctor;
mod durability;
pub mod floor;
mod held;
mod incarnation;
mod inspect;
mod keys;
mod lane;
mod limits;
mod link;
mod listening;
mod locks;
mod news;
mod options;
mod pages;
mod pause;
mod pieces;
mod presence;
mod quick;
mod record;
mod registry;
mod room;
mod script;
mod store;
mod sweep;
mod timers;
mod timing;
mod value;

pub use acl::{acl_options, acl_rule};
pub use clock::ServerClock;
pub use durability::Unfit;
pub use options::{Address, InvalidRedisUrl, Place, RedisOptions, Tls};
pub use store::RedisStore;
pub use timing::Timing;
