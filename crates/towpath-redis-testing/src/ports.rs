//! Free ports, below those from which the system takes the near end of a connection: a server that is down keeps its port.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

const FIRST: u16 = 10_000;
const COUNT: u16 = 12_000;
/// A node of a Cluster speaks with the others on a second port, so much higher.
const TO_BUS: u16 = 10_000;

/// A port on which nobody listens, neither on that of its Cluster bus. Another process may be faster: then the server that wanted it
/// does not start, and asks again.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    // Test processes run side by side: each begins elsewhere.
    let start = (std::process::id().wrapping_mul(97) % u32::from(COUNT)) as u16;
    for _ in 0..COUNT {
        let port = FIRST + (start + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT) % COUNT;
        if is_free(port) && is_free(port + TO_BUS) {
            return port;
        }
    }
    panic!("no port is free from {FIRST} on");
}
