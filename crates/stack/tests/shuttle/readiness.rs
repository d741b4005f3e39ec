//! A caller that is about to sleep on a socket's readiness word, or registers with a poll set, while another thread
//! sets the bit that it waits for.
//!
//! Generic over the platform: shuttle runs this here, and loom, which models weak memory, in `tests/loom.rs`.

use std::sync::Arc;

use stack::socket::readiness::ReadyState;
use stack::socket::{PollSet, Pollable, Readiness};
use sync::{Platform, ThreadClass, Writers};

/// A sleep here ends only by a wake-up, so a lost one is a deadlock. The bit is set and cleared once before, as by
/// earlier segments: with [`Writers::One`] only the second edge uses plain stores.
pub fn ready_while_falling_asleep<P: Platform>(writers: Writers) {
    let word = Arc::new(ReadyState::<P>::default());
    word.raise_as(Readiness::READABLE, writers);
    word.clear_as(Readiness::READABLE, writers);
    let waits = word.clone();
    let caller = P::spawn("caller", None, ThreadClass::Application, move || {
        waits.wait(Readiness::READABLE, None);
    });
    word.raise_as(Readiness::READABLE, writers);
    P::join(caller).expect("the caller ends well");
}

struct Socket<P: Platform>(ReadyState<P>);

impl<P: Platform> Pollable<P> for Socket<P> {
    fn ready_state(&self) -> &ReadyState<P> {
        &self.0
    }
}

/// The set gets an edge that occurs while the socket registers.
pub fn ready_while_registering<P: Platform>(writers: Writers) {
    let socket = Arc::new(Socket(ReadyState::<P>::default()));
    socket.0.raise_as(Readiness::READABLE, writers);
    socket.0.clear_as(Readiness::READABLE, writers);
    let set = PollSet::<P>::new(false).expect("no descriptor is asked for");
    let (registers, hears) = (socket.clone(), set.clone());
    let caller =
        P::spawn("caller", None, ThreadClass::Application, move || registers.0.register(&registers, &hears, 1));
    socket.0.raise_as(Readiness::READABLE, writers);
    P::join(caller).expect("the caller ends well");
    let mut events = Vec::new();
    set.try_wait(&mut events, 8);
    assert!(events.iter().any(|event| event.ready.contains(Readiness::READABLE)), "nobody was told: {events:?}");
    set.close();
}

/// A sleep here ends only by an edge: the set's watcher hears of one that occurs while it falls asleep. One has been taken
/// before, by the thread that causes the edges.
pub fn edge_while_the_watcher_falls_asleep<P: Platform>(writers: Writers) {
    let socket = Arc::new(Socket(ReadyState::<P>::default()));
    let set = PollSet::<P>::new(false).expect("no descriptor is asked for");
    socket.0.register(&socket, &set, 1);
    socket.0.raise_as(Readiness::READABLE, writers);
    assert_eq!(set.try_wait(&mut Vec::new(), 8), 1);
    socket.0.clear_as(Readiness::READABLE, writers);
    let watches = set.clone();
    let watcher = P::spawn("watcher", None, ThreadClass::Application, move || {
        assert_eq!(watches.wait(&mut Vec::new(), 8, None), 1);
    });
    socket.0.raise_as(Readiness::READABLE, writers);
    P::join(watcher).expect("the watcher ends well");
    set.close();
}
