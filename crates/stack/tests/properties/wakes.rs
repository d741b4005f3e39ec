//! Which threads are woken, and when: protocol threads, several pollers, and users of a socket that a call has made
//! ready.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use every_arch::every_arch;
use observe::Counter;
use stack::call::{Call, Reply};
use stack::socket::readiness::Watch;
use stack::socket::{PollSet, Readiness};
use stack::{Architecture, Stack};
use testbed::frames::{Datagram, Ends};
use testbed::node::send;
use wire::tcp::TcpFlags;

use crate::bench::Bench;
use crate::scene::{Observed, State};
use crate::walk::{Moment, What, moments};

const POLLERS: [&str; 2] = ["poller 0", "poller 1"];

/// A batch with two segments for one thread of the architecture and one for the other, both of which sleep: the receive thread's
/// walk.
fn batch_for_two_sleepers(arch: Architecture, ends: Ends) -> Vec<Moment> {
    let mut bench = Bench::with_threads(arch, ends);
    let (a, b) = bench.ports(2, 0, 1);
    let (mut one, mut two) = (bench.connect(a), bench.connect(b));
    drop(bench.scene.until(State::own_threads_sleep));
    let frames = [one.data(b"first"), two.data(b"other"), one.data(b"second")];
    moments(&bench.walk(&frames))
}

fn wakes_and_messages(walk: &[Moment]) -> Vec<What> {
    walk.iter().map(|moment| moment.what).filter(|what| matches!(what, What::Wakes | What::HandsOver)).collect()
}

/// Wake-ups are deferred to the end of a batch, and then each thread that was sent a message and sleeps is woken once,
/// with no lock held.
#[every_arch(only(connp_t, connp_t_spsc, conn_thread_2, netisr_deferred))]
fn each_sleeper_is_woken_once_at_the_end_of_a_batch(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let walk = batch_for_two_sleepers(arch, ends);
        use What::{HandsOver, Wakes};
        assert_eq!(wakes_and_messages(&walk), [HandsOver, HandsOver, HandsOver, Wakes, Wakes]);
        assert!(walk.iter().all(|moment| moment.what != Wakes || moment.held.is_empty()), "no lock is held: {walk:?}");
    }
}

/// One batch makes sockets ready that belong to different poll sets, and one on which a thread sleeps: each waiter is
/// notified.
#[every_arch]
fn a_batch_wakes_every_poller_that_it_concerns(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = Bench::with_threads(arch, ends);
        let (a, b) = bench.ports(2, 0, 1);
        let (mut one, mut two) = (bench.connect(a), bench.connect(b));
        let mut third = bench.connect(a + 5000);
        let udp = bench.stack.bind_udp(SocketAddr::new(ends.dst, 53)).expect("the port is free");
        let sets = [(); 3].map(|()| PollSet::new(false).expect("a set"));
        one.socket.ready.register(&one.socket, &sets[0], 1);
        two.socket.ready.register(&two.socket, &sets[1], 2);
        udp.ready.register(&udp, &sets[2], 3);
        let mut events = Vec::new();
        for set in &sets {
            while set.try_wait(&mut events, 8) > 0 {}
        }
        let sleeper = third.socket.clone();
        let sleeps = bench.scene.spawn("sleeper", move || {
            sleeper.ready.wait(Readiness::PEER_CLOSED, None);
        });
        let pollers = [0, 1].map(|n| {
            let set = sets[n].clone();
            bench.scene.spawn(POLLERS[n], move || assert_eq!(set.wait(&mut Vec::new(), 8, None), 1))
        });
        drop(bench.scene.until(|state| ["sleeper", POLLERS[0], POLLERS[1]].iter().all(|who| state.sleeps(who, &[]))));
        let end = third.segment(TcpFlags::FIN, b"");
        for frame in [one.data(b"text"), two.data(b"text"), end, Datagram::new(9, 53, b"text").frame_over(ends)] {
            bench.put(&frame);
        }
        assert_eq!(bench.driver.poll(), 4, "one batch");
        drop(
            bench.scene.until(|state| ["sleeper", POLLERS[0], POLLERS[1]].iter().all(|who| state.done.contains(*who))),
        );
        pollers.into_iter().chain([sleeps]).for_each(crate::scene::Thread::join);
        bench.settle();
        assert_eq!(sets[2].try_wait(&mut events, 8), 1);
        assert_eq!(events[0].token, 3);
    }
}

/// When its connection becomes readable, makes calls on two others, on the notifying thread.
struct Reacts {
    stack: Stack<Observed>,
    writes: stack::flow::Target,
    aborts: stack::flow::Target,
    told: Mutex<Vec<Readiness>>,
}

impl Watch for Reacts {
    fn ready(&self, _: Readiness, level: Readiness) {
        self.told.lock().expect("no test has failed in it").push(level);
        if level.contains(Readiness::READABLE) {
            self.stack.call(&self.writes, send(b"reaction"));
            self.stack.call(&self.aborts, Call::Abort(tcp::Abort));
        }
    }
}

/// A watch makes calls on connections of the same cell, on the thread that owns them where threads own cells. The calls
/// return, the device is notified of the segments, and a thread that sleeps on a connection wakes when the call closes
/// it.
#[every_arch]
fn a_call_from_a_watch_performs_its_effects(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = Bench::with_threads(arch, ends);
        let (a, b) = bench.ports(1024, 5, 5);
        let c = bench.port_from(1024, 5, b + 1);
        let (mut one, two, three) = (bench.connect(a), bench.connect(b), bench.connect(c));
        let (stack, told) = (bench.stack.clone(), Mutex::default());
        let reacts = Reacts { stack, writes: two.socket.target(), aborts: three.socket.target(), told };
        one.socket.ready.watch(Arc::new(reacts));
        let sleeper = three.socket.clone();
        let sleeps = bench.scene.spawn("sleeper", move || {
            sleeper.ready.wait(Readiness::CLOSED, None);
        });
        drop(bench.scene.until(|state| state.sleeps("sleeper", &[])));
        bench.scene.state().sent.clear();
        let frame = one.data(b"text");
        bench.put(&frame);
        bench.driver.poll();
        let all = |state: &State| !state.unflushed && [b, c].iter().all(|port| !state.senders(*port).is_empty());
        let state = bench.scene.until(all);
        let by = state.senders(b)[0].to_owned();
        assert_eq!(state.senders(c)[0], by, "both on the thread that was told");
        drop(state);
        drop(bench.scene.until(|state| state.done.contains("sleeper")));
        sleeps.join();
    }
}

/// Segments wait for room in a full device. When there is some, the receive thread notifies their connections, and wakes the
/// threads that send: these sleep, and no later event would wake them.
#[every_arch]
fn room_in_a_device_wakes_the_threads_that_wait_for_it(arch: Architecture) {
    const ROOM: usize = 4;
    const CONNECTIONS: usize = 8;
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = Bench::with_room_for(ROOM, arch, ends);
        let connections: Vec<_> = (0..CONNECTIONS).map(|n| bench.connect(2000 + 10 * n as u16)).collect();
        for connection in &connections {
            assert!(matches!(bench.call(connection, send(b"text")), Reply::Sent(Ok(_))));
        }
        drop(bench.scene.until(State::own_threads_sleep));
        let (first, before) = (bench.collect(), bench.driver.counters().get(Counter::RoomTurns));
        assert!((1..=ROOM).contains(&first), "the device was full");
        bench.driver.poll();
        let rest = bench.settle();
        assert_eq!(rest.len(), CONNECTIONS - first, "all segments leave");
        assert!(bench.driver.counters().get(Counter::RoomTurns) > before, "they had to wait");
    }
}
