//! What a core of `connp-t:lwkt` does with its queue: the protocol thread lets the driver run after as many messages as it may
//! run, and keeps the rest; and a call of the core's own application has its turn in that queue.

use wire::tcp::TcpFlags;

use super::*;

/// DragonFly: messages that a protocol thread runs in a row.
const ROUND: usize = 512;
/// Messages that are left in the queue then.
const REST: usize = 40;

fn arch() -> Architecture {
    Architecture::named("connp-t:lwkt")
}

/// Ports of the peer whose SYNs the first core receives, and the second one answers.
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

/// The second core does `then` when it has `ROUND + REST` messages and has polled once. Returns the answers before and after that,
/// and all, in order.
fn with_a_queue(ends: Ends, then: impl Fn(&mut Core<'_>) + Sync) -> [Vec<u16>; 3] {
    let mut cores = on_cores(arch(), (2, 1), |core| {
        let mut seen = [vec![], vec![], vec![]];
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
            assert!(!core.stack.is_quiescent(), "there is more in the queue");
            assert!(core.driver.next_deadline() <= START, "and the core does not sleep");
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
        seen
    });
    cores.swap_remove(0)
}

/// A protocol thread can be suspended in the middle of its queue: after a round it lets the driver of its core run, and goes on in the
/// next turn where it was. Messages run in the order in which they were sent.
#[test]
fn a_protocol_thread_is_suspended_in_the_middle_of_its_queue() {
    for ends in Ends::BOTH_FAMILIES {
        let [before, after, all] = with_a_queue(ends, |core| _ = core.driver.poll());
        assert_eq!((before.len(), after.len()), (ROUND, REST));
        assert_eq!([before, after].concat(), all);
    }
}

/// A call of the core's own application is a message in that queue: what is before it runs first, also where the core does not poll
/// meanwhile.
#[test]
fn a_call_of_a_core_has_its_turn_in_the_queue() {
    for ends in Ends::BOTH_FAMILIES {
        let [before, after, all] = with_a_queue(ends, |core| {
            let opened = core.stack.connect(None, SocketAddr::new(ends.src, 81), &Default::default());
            assert_eq!(opened.expect("a port is free").target().index(CORES), core.index, "its own connection");
        });
        assert_eq!((before.len(), after.len()), (ROUND, REST));
        assert_eq!([before, after].concat(), all);
    }
}
