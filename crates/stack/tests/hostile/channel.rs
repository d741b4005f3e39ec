//! One connection reveals nothing about another (T3, CVE-2016-5696). An attacker counts the challenge ACKs on its own
//! connections while it guesses sequence numbers of others. Their number and times do not depend on the guesses,
//! because no counter is shared.

use std::net::Ipv4Addr;
use std::time::Duration;

use every_arch::every_arch;
use observe::{Counter, Time};
use stack::Architecture;
use sync::Real;
use testbed::frames::{ISS, PEER, Segment};
use testbed::node::Node;
use wire::tcp::TcpFlags;

use super::peers::{PORT, answer, routed, turn};

/// The attacker's own connections, which it observes.
const WATCHED: u16 = 5;
/// Connections of others.
const VICTIMS: u16 = 40;
const SECONDS: u32 = 6;

fn open(node: &mut Node<Real>, from: (Ipv4Addr, u16)) {
    let answers = node.exchange(&Segment::syn(from.1, PORT).frame_from(from.0));
    let first = answer(&answers[0]).expect("a SYN-ACK").1.seq.0.wrapping_add(1);
    node.exchange(&Segment::data((from.1, PORT), 0, first, &[]).frame_from(from.0));
}

/// A reset or SYN in the window, so that it is challenged, but not exact.
fn guess(from: (Ipv4Addr, u16), round: u32) -> Vec<u8> {
    let near = ISS.wrapping_add(2 + round % 1000);
    let flags = if round.is_multiple_of(2) { TcpFlags::RST } else { TcpFlags::SYN };
    Segment { flags, ..Segment::ack((from.1, PORT), near, 0) }.frame_from(from.0)
}

/// The observations of the attacker: the times of challenges on each of its connections. And the total of challenges.
fn watch(arch: Architecture, guessed: bool) -> (Vec<(Time, u16)>, u64) {
    let mut node = routed(arch, |_| {});
    let listener = node.listen(PORT, 128);
    let (own, other) = (PEER, Ipv4Addr::new(192, 168, 7, 7));
    (0..WATCHED).for_each(|n| open(&mut node, (own, 3000 + n)));
    (0..VICTIMS).for_each(|n| open(&mut node, (other, 4000 + n)));
    let children: Vec<_> = std::iter::from_fn(|| listener.accept()).collect();
    assert_eq!(children.len(), usize::from(WATCHED + VICTIMS));
    let mut seen = Vec::new();
    for round in 0..SECONDS * 50 {
        if guessed {
            for n in 0..VICTIMS {
                node.put(&guess((other, 4000 + n), round));
            }
        }
        for n in 0..WATCHED {
            node.put(&guess((own, 3000 + n), round));
        }
        let now = node.clock.now();
        let mine = node.settle().into_iter().filter_map(|frame| {
            let ((to, port), header, data) = answer(&frame)?;
            assert!(data.is_empty() && header.flags == TcpFlags::ACK, "a challenge and nothing else");
            (to == own).then_some((now, port))
        });
        seen.extend(mine);
        node.clock.advance(Duration::from_millis(20));
    }
    (seen, node.stack.stats().counters.get(Counter::ChallengeAcksOut))
}

#[every_arch]
fn challenges_on_one_connection_tell_nothing_of_another(arch: Architecture) {
    let _turn = turn();
    let (quiet, few) = watch(arch, false);
    let (noisy, many) = watch(arch, true);
    assert_eq!(quiet, noisy, "the stranger sees the same, to the moment");
    let each = |port| quiet.iter().filter(|(_, to)| *to == port).count() as u32;
    for port in 3000..3000 + WATCHED {
        assert!((2 * SECONDS - 1..=2 * SECONDS).contains(&each(port)), "{} challenges of {port}", each(port));
    }
    // The guesses were in the window, or nothing was tested: each victim had its own share.
    let share = |connections: u16| u64::from(connections) * u64::from(2 * SECONDS);
    assert!(few <= share(WATCHED), "{few}");
    assert!(many - few >= share(VICTIMS) - u64::from(VICTIMS) && many <= share(WATCHED + VICTIMS), "{many}");
}
