//! Messages and batches while the only server is killed.

use super::batches;
use crate::support::Server;

#[test]
fn no_message_is_lost_or_in_two_batches_though_servers_are_killed_and_the_receiver_misbehaves() {
    batches::all(|| vec![Server::start()], Server::start_in);
}
