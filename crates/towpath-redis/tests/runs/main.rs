//! Runs of workflows on a real server: the whole law, on one server and on three masters, and what only Redis can go through.

mod crowd;
mod expiry;
mod keys_page;
mod law;
mod queues;
mod references;
mod replicated;
mod rig;
mod several;
mod trouble;
mod waking;
