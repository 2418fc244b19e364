//! Locks on a real server in real time: beside old workflows, behind faults, and among processes that are killed and stopped.

mod cleaned_up;
mod client;
mod crowd;
mod fenced;
mod flushed;
mod hand_off;
mod hazards;
mod keys_page;
mod kinds;
mod mixed_fleet;
mod old_workflow;
mod pollers;
mod repeated;
mod replicated;
mod rig;
