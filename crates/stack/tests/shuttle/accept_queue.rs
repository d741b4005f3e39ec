//! A thread that accepts by clearing the readiness and sleeping on it, while a receive thread with a queue of its own
//! completes handshakes.
//!
//! Generic over the platform: shuttle runs this here, and loom, which models weak memory, in `tests/loom.rs`.

use std::net::IpAddr;
use std::sync::Arc;

use stack::alarm::Alarms;
use stack::flow::Flow;
use stack::socket::{ListenerShared, Readiness, TcpSocket};
use sync::{Platform, ThreadClass};

fn child<P: Platform>(port: u16) -> Arc<TcpSocket<P>> {
    let address = IpAddr::from([10, 0, 0, 1]);
    let tuple = wire::FourTuple { local_addr: address, remote_addr: address, local_port: 80, remote_port: port };
    TcpSocket::new(Flow { tuple, hash: 0 })
}

/// Every connection is accepted: a sleep here ends only by a wake-up, so a lost one is a deadlock.
pub fn queued_while_falling_asleep<P: Platform>(connections: u16) {
    let alarms = Arc::new(Alarms::<P>::new(2));
    let local = "[::]:80".parse().expect("an address");
    let listener = ListenerShared::<P>::new(local, (8, 8), Default::default(), alarms.clone());
    let receives = listener.clone();
    let receiver = P::spawn("receiver", None, ThreadClass::Receive, move || {
        alarms.run_here(1);
        for port in 1..=connections {
            receives.take_place();
            receives.establish(child(port)).expect("the listener is open");
            receives.ready.raise(Readiness::ACCEPTABLE);
        }
    });
    let mut accepted = Vec::new();
    while accepted.len() < connections.into() {
        match listener.accept() {
            Some(child) => accepted.push(child.tuple().remote_port),
            None => _ = listener.ready.wait(Readiness::ACCEPTABLE, None),
        }
    }
    assert_eq!(accepted, (1..=connections).collect::<Vec<_>>());
    P::join(receiver).expect("the receive thread ends well");
    assert_eq!((listener.accept().is_none(), listener.occupancy()), (true, (0, 0)));
}
