//! What a core of `connp-t:lwkt` does with its queue: the protocol thread lets the driver run after as many messages as it may
//! run, and keeps the rest; and a call of the core's own application has its turn in that queue.

use stack::flow::Target;
use stack::socket::readiness::Watch;
use wire::tcp::TcpFlags;

use super::*;

/// DragonFly: messages that a protocol thread runs in a row.
const ROUND: usize = 512;
/// Messages that are left in the queue then.
const REST: usize = 40;

fn arch() -> Architecture {
    Architecture::named("connp-t:lwkt")
}

/// Ports of the peer: the first core receives their SYNs, and the second one answers.
fn ports(core: &Core<'_>, ends: Ends) -> Vec<u16> {
    let next = |from: u16| core.port_of(1, ends, from);
    std::iter::successors(Some(next(2000)), |port| Some(next(port + 1))).take(ROUND + REST).collect()
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

/// The second core does `then` when it has `ROUND + REST` messages and has polled once. What is answered before and after that is
/// all of them, in their order, and in the middle of its queue the core neither rests nor sleeps.
fn goes_on_in_its_queue(ends: Ends, then: impl Fn(&mut Core<'_>) + Sync) {
    let cores = on_cores(arch(), (2, 1), |core| {
        let (mut seen, mut due) = ([vec![], vec![], vec![]], None);
        if core.index == 0 {
            seen[2] = ports(core, ends);
            for port in &seen[2] {
                let syn = Segment::syn(*port, PORT).frame_over(ends);
                core.alone(|core, peer| assert_eq!(core.receive(peer, &syn).handoffs, 1));
            }
        }
        core.all.wait();
        if core.index == 1 {
            core.driver.poll();
            due = Some((core.stack.is_quiescent(), core.driver.next_deadline()));
        }
        core.all.wait();
        if core.index == 0 {
            seen[0] = answered(core);
        }
        core.all.wait();
        if core.index == 1 {
            then(core);
        }
        core.all.wait();
        if core.index == 0 {
            seen[1] = answered(core);
        }
        (seen, due)
    });
    let (rests, due) = cores[1].1.expect("it has polled");
    assert!(!rests && due <= START, "there is more in its queue, so it goes on at once and not at {due:?}");
    let [before, after, all] = &cores[0].0;
    assert_eq!((before.len(), after.len()), (ROUND, REST));
    assert_eq!([&before[..], after].concat(), *all, "in order");
}

/// A protocol thread can be suspended in the middle of its queue: after a round it lets the driver of its core run, and goes on in the
/// next turn where it was. Messages run in the order in which they were sent.
#[test]
fn a_protocol_thread_is_suspended_in_the_middle_of_its_queue() {
    for ends in Ends::BOTH_FAMILIES {
        goes_on_in_its_queue(ends, |core| _ = core.driver.poll());
    }
}

/// A call of the core's own application is a message in that queue: what is before it runs first, also where the core does not poll
/// meanwhile.
#[test]
fn a_call_of_a_core_has_its_turn_in_the_queue() {
    for ends in Ends::BOTH_FAMILIES {
        goes_on_in_its_queue(ends, |core| {
            let opened = core.stack.connect(None, SocketAddr::new(ends.src, 81), &Default::default());
            assert_eq!(opened.expect("a port is free").target().index(CORES), core.index, "its own connection");
        });
    }
}

/// A core that stops polling runs what is in its queue first.
#[test]
fn a_core_that_stops_leaves_nothing_in_its_queue() {
    for ends in Ends::BOTH_FAMILIES {
        goes_on_in_its_queue(ends, |core| core.driver.rest());
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
