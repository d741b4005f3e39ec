//! Clients that hold on to memory: windows that never open (Sockstress), handshakes and closes that never end.

use std::time::Duration;

use every_arch::every_arch;
use stack::Architecture;
use stack::call::Call;
use sync::Real;
use testbed::frames::Segment;
use testbed::node::{Node, send};
use wire::tcp::TcpFlags;

use super::held::{BUFFER, Before, Held, close, host, open, small};
use super::peers::{PORT, answer, routed, turn};

/// Lets `seconds` pass; clients answer each window probe with a closed window.
fn hold(node: &mut Node<Real>, seconds: u32) -> usize {
    let mut probes = 0;
    for _ in 0..seconds * 4 {
        node.clock.advance(Duration::from_millis(250));
        for frame in node.settle() {
            let Some((to, header, _)) = answer(&frame) else { continue };
            probes += 1;
            if !header.flags.contains(TcpFlags::RST) {
                node.put(&Segment::data((to.1, PORT), 0, header.seq.0, &[]).window(0).frame_from(to.0));
            }
            if probes % 64 == 0 {
                node.settle();
            }
        }
    }
    probes
}

/// Peers with closed windows: they pin only the contents of their send buffers, honest clients are not affected, and
/// two minutes after their users have closed them nothing is left of them, although each answers every probe.
fn zero_windows(arch: Architecture, count: usize) {
    let _turn = turn();
    let mut node = small(arch);
    let before = Before::measure(&mut node);
    let held = open(&mut node, count, 0);
    for Held { socket, .. } in &held {
        // More than the buffer accepts: a writer would block here.
        node.call(socket, send(&[9; 4 * BUFFER as usize]));
    }
    before.honest_notice_nothing(&mut node);
    hold(&mut node, 10);
    let pinned = before.pinned(&node);
    // PCB, places in tables, and the overhead of packet buffers over their data. Where few connections are spread over
    // many groups, each has its own tables.
    assert!(pinned <= count * (BUFFER as usize + 6144), "{} bytes are pinned by each", pinned / count);
    assert!(node.stack.stats().connections >= count);
    close(&node, &held);
    hold(&mut node, 120);
    before.nothing_is_left(&node, held);
}

#[test]
fn three_thousand_closed_windows() {
    zero_windows(Architecture::named("up"), 3000);
}

#[every_arch]
fn closed_windows_pin_their_buffers_and_go(arch: Architecture) {
    zero_windows(arch, 60);
}

/// Peers that never close their half (FIN-WAIT-2), and orphans beyond the limit: both end.
#[every_arch]
fn peers_that_never_close_are_not_waited_for(arch: Architecture) {
    let _turn = turn();
    let mut node = routed(arch, |terms| terms.tcp.max_orphans = 40);
    let held = open(&mut node, 60, 60_000);
    close(&node, &held);
    let mut resets = 0;
    for frame in node.settle() {
        let (to, header, _) = answer(&frame).expect("a segment");
        resets += usize::from(header.flags.contains(TcpFlags::RST));
        let next = held.iter().find(|held| held.from == to).expect("a holder").next;
        node.put(&Segment::data((to.1, PORT), 0, next.wrapping_add(1), &[]).frame_from(to.0));
    }
    node.settle();
    assert!((15..=25).contains(&resets), "{resets} are reset at once, forty may wait");
    assert!(node.stack.stats().connections <= 45);
    node.pass(Duration::from_secs(65), Duration::from_secs(1));
    assert_eq!(node.stack.stats().connections, 0, "a minute of FIN-WAIT-2 is enough");
}

/// More closes than TIME-WAIT may hold, and handshakes that are never completed.
#[every_arch]
fn time_wait_and_half_open_connections_have_their_bounds(arch: Architecture) {
    let _turn = turn();
    let mut node = routed(arch, |terms| {
        terms.tcp.max_time_wait = 30;
        terms.tcp.syn_backlog = 64;
        terms.tcp.syn_cookies = tcp::config::SynCookies::Never;
    });
    let held = open(&mut node, 60, 60_000);
    for Held { socket, from, next, .. } in &held {
        node.call(socket, Call::Close(tcp::Close));
        node.exchange(
            &Segment::data((from.1, PORT), 0, next.wrapping_add(1), &[]).and(TcpFlags::FIN).frame_from(from.0),
        );
    }
    // The excess is removed at the next tick.
    node.pass(Duration::from_millis(100), Duration::from_millis(10));
    let waiting = node.stack.stats().connections;
    assert!((25..=31).contains(&waiting), "{waiting} in TIME-WAIT");
    let listener = node.listen(PORT, 64);
    for n in 0..300 {
        let (host, port) = host(1000 + n);
        node.exchange(&Segment::syn(port, PORT).frame_from(host));
    }
    assert_eq!(listener.occupancy().0, 64);
    node.pass(Duration::from_secs(70), Duration::from_secs(1));
    assert_eq!((listener.occupancy().0, node.stack.stats().connections), (0, 0));
}
