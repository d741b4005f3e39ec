//! What a core of `connp-t:lwkt` does with its queue: the protocol thread lets the driver run after as many messages as it may
//! run, and keeps the rest; and a call of the core's own application has its turn in that queue.

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use stack::flow::Target;
use stack::socket::readiness::Watch;
use wire::tcp::TcpFlags;

use super::*;

/// DragonFly: messages that a protocol thread runs in a row.
const ROUND: usize = 512;
/// Messages that are left in the queue then.
const REST: usize = 40;
/// Messages that come after that.
const LATE: usize = 3;

fn arch() -> Architecture {
    Architecture::named("connp-t:lwkt")
}

/// Ports of the peer: the first core receives their SYNs, and the second one answers.
fn ports(core: &Core<'_>, ends: Ends, count: usize) -> Vec<u16> {
    let next = |from: u16| core.port_of(1, ends, from);
    std::iter::successors(Some(next(2000)), |port| Some(next(port + 1))).take(count).collect()
}

/// The first core receives SYNs from these ports for the second one.
fn receive_all(core: &mut Core<'_>, ends: Ends, ports: &[u16]) {
    for port in ports {
        let syn = Segment::syn(*port, PORT).frame_over(ends);
        core.alone(|core, peer| assert_eq!(core.receive(peer, &syn).handoffs, 1));
    }
}

/// The peer's ports to which SYN-ACKs have been sent, in order. The first core has the queue by which they leave.
fn answered(core: &mut Core<'_>) -> Vec<u16> {
    core.alone(|core, peer| {
        let mut ports = Vec::new();
        loop {
            let polled = core.driver.poll();
            let segments = peer.segments();
            if polled == 0 && segments.is_empty() {
                return ports;
            }
            let answers = segments.iter().filter(|(header, _)| header.flags.contains(TcpFlags::SYN | TcpFlags::ACK));
            ports.extend(answers.map(|(header, _)| header.dst_port));
        }
    })
}

/// The second core does `then` when it has `ROUND + REST` messages, has polled once, and has been sent `late` more. What is answered
/// before and after that is all of them, in their order; in the middle of its queue the core neither rests nor sleeps, and at its end it
/// rests. The first core has stopped when `then` is done.
fn goes_on_in_its_queue(ends: Ends, late: usize, then: impl Fn(&mut Core<'_>) + Sync) {
    let cores = on_cores(arch(), (2, 1), |core| {
        let (mut seen, mut due, mut rests) = ([vec![], vec![], vec![]], None, false);
        if core.index == 0 {
            seen[2] = ports(core, ends, ROUND + REST + late);
            receive_all(core, ends, &seen[2][..ROUND + REST]);
        }
        core.all.wait();
        if core.index == 1 {
            core.driver.poll();
            due = Some((core.stack.is_quiescent(), core.driver.next_deadline()));
        }
        core.all.wait();
        if core.index == 0 {
            seen[0] = answered(core);
            receive_all(core, ends, &seen[2][ROUND + REST..]);
            core.driver.rest();
        }
        core.all.wait();
        if core.index == 1 {
            then(core);
            rests = core.stack.is_quiescent();
        }
        core.all.wait();
        if core.index == 0 {
            seen[1] = answered(core);
        }
        (seen, due, rests)
    });
    let (rests, due) = cores[1].1.expect("it has polled");
    assert!(cores[1].2, "nothing is left");
    assert!(!rests && due <= START, "there is more in its queue, so it goes on at once and not at {due:?}");
    let [before, after, all] = &cores[0].0;
    assert_eq!((before.len(), after.len()), (ROUND, REST + late));
    assert_eq!([&before[..], after].concat(), *all, "in order");
}

/// A protocol thread can be suspended in the middle of its queue: after a round it lets the driver of its core run, and goes on in the
/// next turn where it was. Messages run in the order in which they were sent.
#[test]
fn a_protocol_thread_is_suspended_in_the_middle_of_its_queue() {
    for ends in Ends::BOTH_FAMILIES {
        goes_on_in_its_queue(ends, LATE, |core| _ = core.driver.poll());
    }
}

/// A call of the core's own application is a message in that queue: what is before it runs first, also where the core does not poll
/// meanwhile.
#[test]
fn a_call_of_a_core_has_its_turn_in_the_queue() {
    for ends in Ends::BOTH_FAMILIES {
        goes_on_in_its_queue(ends, 0, |core| {
            let opened = core.stack.connect(None, SocketAddr::new(ends.src, 81), &Default::default());
            assert_eq!(opened.expect("a port is free").target().index(CORES), core.index, "its own connection");
        });
    }
}

/// A core that stops polling runs what is in its queue first.
#[test]
fn a_core_that_stops_leaves_nothing_in_its_queue() {
    for ends in Ends::BOTH_FAMILIES {
        goes_on_in_its_queue(ends, LATE, |core| core.driver.rest());
    }
}

/// The next architecture runs what is in a core's queue, and then what other threads have sent.
#[test]
fn what_is_in_the_queue_of_a_core_moves_to_the_next_architecture() {
    for ends in Ends::BOTH_FAMILIES {
        goes_on_in_its_queue(ends, LATE, |core| {
            core.stack.switch(Architecture::named("giant")).expect("the other core has stopped");
        });
    }
}

/// The first core receives a frame, which the second one runs. The answers, on the first.
fn bring(core: &mut Core<'_>, frame: impl FnOnce() -> Vec<u8>) -> Vec<(Header, Vec<u8>)> {
    if core.index == 0 {
        let frame = frame();
        core.alone(|core, peer| assert_eq!(core.receive(peer, &frame).handoffs, 1));
    }
    core.all.wait();
    if core.index == 1 {
        core.driver.poll();
    }
    core.all.wait();
    let answers = |core: &mut Core<'_>, peer: &mut Peer| {
        core.driver.poll();
        peer.segments()
    };
    if core.index == 0 { core.alone(answers) } else { vec![] }
}

/// A connection of each core. Returns that of the calling one, and the peer's next segment on that of the second core.
fn connect_both(core: &mut Core<'_>, ends: Ends) -> (Arc<TcpSocket<Counting>>, Segment<'static>) {
    let own = (core.index == 0).then(|| core.alone(|core, peer| core.accept(peer, ends)).socket);
    let port = core.port_of(1, ends, 2000);
    let answers = bring(core, || Segment::syn(port, PORT).frame_over(ends));
    let next = answers.first().map_or(0, |(header, _)| header.seq.0.wrapping_add(1));
    let ack = Segment::ack((port, PORT), ISS.wrapping_add(1), next);
    bring(core, || Segment { flags: TcpFlags::ACK, ..ack }.frame_over(ends));
    (own.unwrap_or_else(|| core.listener.accept().expect("a child waits")), ack.and(TcpFlags::PSH))
}

/// While a core waits for another one's answer it runs what is in its queue, and then what threads ask of its cell, however late
/// they ask: the other core may be waiting for such a thread.
#[test]
fn a_core_that_waits_for_another_one_serves_its_own_cell() {
    const CALLS: usize = 100;
    testbed::limit::within(|| {
        let (sockets, done) = ([const { OnceLock::new() }; CORES], AtomicBool::new(false));
        on_cores(arch(), (2, 1), |core| {
            let ends = Ends::PEER_TO_STACK;
            let (socket, segment) = connect_both(core, ends);
            sockets[core.index].get_or_init(|| socket);
            core.all.wait();
            let [first, second] = [0, 1].map(|index: usize| sockets[index].get().expect("each has one"));
            let read = |stack: &Stack<Counting>, of: &TcpSocket<Counting>| {
                received(stack.call(&of.target(), Call::Receive(tcp::Receive { max: 100 })))
            };
            if core.index == 0 {
                let ports = ports(core, ends, ROUND + 1);
                receive_all(core, ends, &ports[1..]);
                let frame = Segment { data: b"text", ..segment }.frame_over(ends);
                core.alone(|core, peer| assert_eq!(core.receive(peer, &frame).handoffs, 1));
            }
            core.all.wait();
            if core.index == 1 {
                core.driver.poll();
                assert!(!second.ready.get().contains(Readiness::READABLE), "it is the last in the queue");
                assert_eq!(read(&core.stack, first), None, "the other core has no text");
                done.store(true, Ordering::SeqCst);
                return;
            }
            while !second.ready.get().contains(Readiness::READABLE) {
                thread::yield_now();
            }
            let stack = &core.stack;
            let asks = || (0..CALLS).filter_map(|_| read(stack, second)).collect::<Vec<_>>();
            let texts = thread::scope(|scope| scope.spawn(asks).join().expect("the thread ends well"));
            assert_eq!(texts, [(b"text".to_vec(), false)]);
            while !done.load(Ordering::SeqCst) {
                core.driver.poll();
                thread::yield_now();
            }
        });
    });
}

/// `listen()` returns when each core has the listener, and nothing of it is under way then. With DragonFly's fault a message is.
#[test]
fn a_core_that_listens_waits_for_all_others() {
    for (name, waits) in [("connp-t:lwkt", true), ("connp-t:lwkt+async-wildcard", false)] {
        on_cores(Architecture::named(name), (1, CORES), |core| {
            // A thread that listens need not wait for a core that does not run.
            core.driver.rest();
            core.all.wait();
            if core.index == 0 {
                let any = SocketAddr::new("::".parse().expect("an address"), 81);
                let _listener = core.stack.listen(any, 64, Default::default()).expect("the port is free");
                assert_eq!(core.stack.is_quiescent(), waits, "{name}");
            }
        });
    }
}

/// Asks all cores when its connection is ready: that is, on the stack of the protocol thread.
struct Asks(Stack<Counting>, AtomicUsize);

impl Watch for Asks {
    fn ready(&self, _: Readiness, _: Readiness) {
        assert_eq!(self.0.stats().connections, CORES, "each has one");
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

/// Two protocol threads that wait for each other's answers run their messages meanwhile, though they are suspended in the middle
/// of their own.
#[test]
fn protocol_threads_that_ask_each_other_get_their_answers() {
    const QUESTIONS: u32 = 200;
    testbed::limit::within(|| {
        let done = AtomicUsize::new(0);
        on_cores(arch(), (1, CORES), |core| {
            let ends = Ends::PEER_TO_STACK;
            let Connection { port, socket, acknowledged, .. } = core.alone(|core, peer| core.accept(peer, ends));
            core.all.wait();
            let asks = Arc::new(Asks(core.stack.clone(), AtomicUsize::new(0)));
            socket.ready.watch(asks.clone());
            let target: Target = socket.target();
            for at in 0..QUESTIONS {
                let seq = ISS.wrapping_add(1 + at);
                let segment = Segment { data: b"?", ..Segment::ack((port, PORT), seq, acknowledged) };
                let frame = segment.and(TcpFlags::PSH).frame_over(ends);
                let before = asks.1.load(Ordering::SeqCst);
                // The other core may be in the peer's lock, and is not asked anything there.
                core.peer.lock().unwrap_or_else(PoisonError::into_inner).put(0, &frame);
                while asks.1.load(Ordering::SeqCst) == before {
                    core.driver.poll();
                }
                let read = core.stack.call(&target, Call::Receive(tcp::Receive { max: 100 }));
                assert_eq!(received(read).expect("data").0, b"?");
            }
            done.fetch_add(1, Ordering::SeqCst);
            while done.load(Ordering::SeqCst) < CORES {
                core.driver.poll();
                thread::yield_now();
            }
        });
    });
}

/// The fault of DragonFly: `listen()` does not wait for the other core, where a SYN that comes at once is refused.
#[test]
fn with_async_wildcard_a_core_may_refuse_what_another_one_listens_for() {
    const NEW: u16 = 81;
    let flags = on_cores(Architecture::named("connp-t:lwkt+async-wildcard"), (1, CORES), |core| {
        let ends = Ends::PEER_TO_STACK;
        // Kept until all is over.
        let listener = (core.index == 0).then(|| {
            let any = SocketAddr::new("::".parse().expect("an address"), NEW);
            core.stack.listen(any, 64, Default::default()).expect("the port is free")
        });
        core.all.wait();
        let index =
            |port: u16| core.stack.flow(SocketAddr::new(ends.dst, NEW), SocketAddr::new(ends.src, port)).index(CORES);
        let port = (2000..).find(|port| index(*port) == core.index).expect("a port");
        let syn = Segment::syn(port, NEW).frame_over(ends);
        let answers = core.alone(|core, peer| {
            [(), ()].map(|()| {
                core.receive(peer, &syn);
                peer.segments().pop().map(|(header, _)| header.flags)
            })
        });
        core.all.wait();
        drop(listener);
        answers
    });
    let (admitted, refused) = (Some(TcpFlags::SYN | TcpFlags::ACK), Some(TcpFlags::RST | TcpFlags::ACK));
    assert_eq!(flags[0][0], admitted, "the replica of the core that listens is waited for");
    assert_eq!(flags[1], [refused, admitted]);
}
