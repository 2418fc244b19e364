//! Batches on a real server: beside old producers and old workers, with drainers that are killed, behind faults, and with nothing to do.

mod drainer;
mod hazards;
mod idle;
mod keys_page;
mod leading;
mod letters;
mod old_producer;
mod old_worker;
mod rig;
mod several;
