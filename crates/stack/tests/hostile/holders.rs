//! Clients that hold on to memory: windows that never open (Sockstress), handshakes and closes that never end.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use every_arch::every_arch;
use stack::Plan;
use stack::call::Call;
use stack::socket::TcpSocket;
use sync::Real;
use testbed::node::{Node, send};
use wire::tcp::TcpFlags;

use super::clients::Clients;
use super::peers::{PORT, Wire, answer, routed, turn};

/// Send buffer of every connection.
const BUFFER: u32 = 8 << 10;

fn host(n: usize) -> (Ipv4Addr, u16) {
    (Ipv4Addr::new(172, 16, (n >> 8) as u8, n as u8), 4000)
}

struct Held {
    socket: Arc<TcpSocket<Real>>,
    from: (Ipv4Addr, u16),
    first: u32,
}

fn small(plan: Plan) -> Node<Real> {
    routed(plan, |terms| {
        terms.tcp.send_buffer = tcp::config::BufferSizes { min: 4096, initial: BUFFER, max: BUFFER };
        terms.tcp.max_time_wait = 0;
    })
}

/// Connections of `count` hosts with this window.
fn open(node: &mut Node<Real>, count: usize, window: u16) -> Vec<Held> {
    let listener = node.listen(PORT, 8);
    let mut held = Vec::new();
    for from in (0..count).map(host) {
        let answers = node.answers(&Wire::syn(from).window(window).frame());
        let first = answer(&answers[0]).expect("a SYN-ACK").1.seq.0.wrapping_add(1);
        node.answers(&Wire::text(from, 0, first, &[]).window(window).frame());
        held.push(Held { socket: listener.accept().expect("a child waits"), from, first });
    }
    node.stack.unlisten(&listener);
    held
}

/// Lets `seconds` pass; who holds a connection answers each probe that the window is closed still.
fn hold(node: &mut Node<Real>, seconds: u32) -> usize {
    let mut probes = 0;
    for _ in 0..seconds * 4 {
        node.clock.advance(Duration::from_millis(250));
        for frame in node.settle() {
            let Some((to, header, _)) = answer(&frame) else { continue };
            probes += 1;
            if !header.flags.contains(TcpFlags::RST) {
                node.put(&Wire::text(to, 0, header.seq.0, &[]).window(0).frame());
            }
            if probes % 64 == 0 {
                node.settle();
            }
        }
    }
    probes
}

/// How many answers honest clients get in a second beside whoever is there.
pub fn goodput(node: &mut Node<Real>) -> usize {
    let listener = node.listen(PORT, 64);
    let mut clients = Clients::new(10, node.clock.now());
    for _ in 0..20 {
        clients.act(node);
        loop {
            let frames = node.settle();
            clients.hear(node, &frames);
            clients.serve(node, &listener);
            if frames.is_empty() {
                break;
            }
        }
        node.clock.advance(Duration::from_millis(10));
    }
    assert_eq!((clients.refused, clients.repeated), (0, 0));
    node.stack.unlisten(&listener);
    clients.answered
}

/// Peers with closed windows: what they pin is what their send buffers hold, honest clients notice nothing, and two
/// minutes after their users have let go nothing is left of them, though each says again and again that it lives.
fn zero_windows(plan: Plan, count: usize) {
    let _turn = turn();
    let live = pktbuf::live();
    let mut node = small(plan);
    let alone = goodput(&mut node);
    let empty = node.stack.census();
    let held = open(&mut node, count, 0);
    for Held { socket, .. } in &held {
        // More than is taken: a writer would block here.
        node.call(socket, send(&[9; 4 * BUFFER as usize]));
    }
    let beside = goodput(&mut node);
    assert!(beside * 10 >= alone * 9, "{beside} answers beside the holders, {alone} alone");
    hold(&mut node, 10);
    let pinned = node.stack.census().bytes - empty.bytes + pktbuf::live().saturating_sub(live) * 2048;
    // PCB, places in tables, and what is larger in a packet buffer than its text. Where few connections are spread over
    // many groups, each has tables of its own.
    assert!(pinned <= count * (BUFFER as usize + 6144), "{} octets are pinned by each", pinned / count);
    assert!(node.stack.census().connections >= count);
    for Held { socket, .. } in &held {
        node.call(socket, Call::Close(tcp::Close));
    }
    hold(&mut node, 120);
    assert_eq!(node.stack.census().connections, 0, "of {count}");
    drop(held);
    assert_eq!(pktbuf::live(), live);
}

#[test]
fn three_thousand_closed_windows() {
    zero_windows(Plan::Up, 3000);
}

#[every_arch]
fn closed_windows_pin_their_buffers_and_go(plan: Plan) {
    zero_windows(plan, 60);
}

/// Peers that never close their half (FIN-WAIT-2), and orphans beyond what is allowed: both end.
#[every_arch]
fn peers_that_never_close_are_not_waited_for(plan: Plan) {
    let _turn = turn();
    let mut node = routed(plan, |terms| terms.tcp.max_orphans = 40);
    let held = open(&mut node, 60, 60_000);
    for Held { socket, .. } in &held {
        node.call(socket, Call::Close(tcp::Close));
    }
    let mut resets = 0;
    for frame in node.settle() {
        let (to, header, _) = answer(&frame).expect("a segment");
        resets += usize::from(header.flags.contains(TcpFlags::RST));
        let first = held.iter().find(|held| held.from == to).expect("a holder").first;
        node.put(&Wire::text(to, 0, first.wrapping_add(1), &[]).frame());
    }
    node.settle();
    assert!((15..=25).contains(&resets), "{resets} are reset at once, forty may wait");
    assert!(node.stack.census().connections <= 45);
    node.pass(Duration::from_secs(65), Duration::from_secs(1));
    assert_eq!(node.stack.census().connections, 0, "a minute of FIN-WAIT-2 is enough");
}

/// More closes than TIME-WAIT may hold, and handshakes that nobody ends.
#[every_arch]
fn time_wait_and_half_open_connections_have_their_bounds(plan: Plan) {
    let _turn = turn();
    let mut node = routed(plan, |terms| {
        terms.tcp.max_time_wait = 30;
        terms.tcp.syn_backlog = 64;
        terms.tcp.syn_cookies = tcp::config::SynCookies::Never;
    });
    let held = open(&mut node, 60, 60_000);
    for Held { socket, from, first } in &held {
        node.call(socket, Call::Close(tcp::Close));
        node.answers(&Wire::text(*from, 0, first.wrapping_add(1), &[]).and(TcpFlags::FIN).frame());
    }
    // What is not kept goes with the next tick.
    node.pass(Duration::from_millis(100), Duration::from_millis(10));
    let waiting = node.stack.census().connections;
    assert!((25..=31).contains(&waiting), "{waiting} in TIME-WAIT");
    let listener = node.listen(PORT, 64);
    for n in 0..300 {
        node.answers(&Wire::syn(host(1000 + n)).frame());
    }
    assert_eq!(listener.occupancy().0, 64);
    node.pass(Duration::from_secs(70), Duration::from_secs(1));
    assert_eq!((listener.occupancy().0, node.stack.census().connections), (0, 0));
}
