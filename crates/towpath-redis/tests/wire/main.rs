//! Towpath beside callers and workers that know nothing of it: small programs in another language, written from the seeds' text.
//!
//! | room | what is shown |
//! |---|---|
//! | `pairings` | old and new callers with old and new workers |
//! | `entries` | entries and replies as old peers write them, with what they leave out |
//! | `registry` | old workers as they stand in the registry |
//! | `groups` | the consumer group, which an old worker makes at the end of the stream and destroys when it leaves |
//! | `strangers` | old peers that acknowledge, claim, copy and trim what is not theirs |
//! | `config` | the shared configuration |
//! | `keys_page` | the page about keys |
//! | `rig` | a server, workers of ours that count, and the old peers as processes |

mod config;
mod entries;
mod groups;
mod keys_page;
mod pairings;
mod registry;
mod rig;
mod strangers;
