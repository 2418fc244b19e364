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
//! | `pieces` | tagged pieces of bytes |
//! | `definition` | how functions and workers are written down |
//! | `script`, `lane` | the Lua files and their arguments; questions that go together |
//! | `value` | reading the server's replies |
//! | `store` | what an open store is made of |
//! | `supervised` | tasks that others depend on |
//! | `calls` | submit, claim, renew, answer, and all other moves of a call |
//! | `timers` | deadlines, leases and delays |
//! | `repair` | finds and mends what does not fit a call's record |
//! | `legacy` | everything that exists for callers and workers built from the seeds |
//! | `locks` | locks, semaphores and read/write locks |
//! | `batches` | messages gathered per key, and the lists of legacy producers |
//! | `runs` | runs of workflows: headers, journals, inboxes, queues |
//! | `limits` | how many in how long, judged by one script |
//! | `news`, `listening` | notifications between processes |
//! | `registry` | functions, workers, the shared configuration |
//! | `unreadable` | keys and members that cannot be read, which are passed over and told once |
//! | `presence` | noticing that a process or a worker went away |
//! | `incarnation` | noticing that the data set was replaced |
//! | `timing` | how soon a store looks for what goes wrong |
//! | `inspect` | reads for people |
//! | `floor` | the bare programs that the store is measured against |

mod about;
mod acl;
mod batches;
mod calls;
mod clock;
mod definition;
pub mod doctor;
mod durability;
pub mod floor;
mod incarnation;
mod inspect;
mod keys;
mod lane;
mod legacy;
mod limits;
mod link;
mod listening;
mod locks;
mod news;
mod options;
mod pause;
mod pieces;
mod presence;
mod quick;
mod registry;
mod repair;
mod retention;
mod runs;
mod script;
mod store;
mod supervised;
mod timers;
mod timing;
mod unreadable;
mod value;

pub use acl::{acl_options, acl_rule};
pub use clock::ServerClock;
pub use durability::Unfit;
pub use options::{Address, InvalidRedisUrl, Place, RedisOptions, Tls};
pub use store::RedisStore;
pub use timing::Timing;
