//! Towpath beside callers and workers that know nothing of it: small programs in another language, written from the seeds' text.
//!
//! | room | what is shown |
//! |---|---|
//! | `pairings` | legacy and new callers with legacy and new workers |
//! | `entries` | entries and replies as legacy peers write them, with what they leave out |
//! | `registry` | legacy workers as they stand in the registry |
//! | `groups` | the consumer group, which a legacy worker makes at the end of the stream and destroys when it leaves |
//! | `strangers` | legacy peers that acknowledge, claim, copy and trim what is not theirs |
//! | `alone` | functions that only legacy workers serve, after ours have left |
//! | `config` | the shared configuration |
//! | `histories` | random histories of all of them together |
//! | `keys_page` | the page about keys |
//! | `rig` | a server, workers of ours that count, and the legacy peers as processes |

mod alone;
mod config;
mod entries;
mod groups;
mod histories;
mod keys_page;
mod pairings;
mod registry;
mod rig;
mod strangers;
