//! Messages and batches while the only server is killed.

use std::path::Path;

use super::batches;
use crate::support::Server;

#[test]
fn no_message_is_lost_or_in_two_batches_though_servers_are_killed_and_the_receiver_misbehaves() {
    batches::all(|| vec![Server::start()], Server::start_in);
}

#[test]
fn every_message_is_in_one_call_though_the_server_is_killed_between_a_call_and_the_end_of_its_batch() {
    let store = |folder: &Path| format!("sqlite:{}", folder.join(".towpath").display());
    batches::every_message_is_in_one_call(Server::start(), Server::start_in, store);
}
