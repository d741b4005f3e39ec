//! SYN floods from addresses that no host has, beside honest clients (RFC 4987).

use std::time::Duration;

use every_arch::every_arch;
use observe::Counter;
use stack::Architecture;
use tcp::config::SynCookies;
use testbed::frames::Segment;

use super::clients::Clients;
use super::peers::{Draw, PORT, routed, turn};

/// Steps of virtual time, and how long one is.
const STEPS: usize = 100;
const STEP: Duration = Duration::from_millis(10);
const HONEST: u8 = 10;
/// Places for half-open connections.
const PLACES: u32 = 512;

struct Outcome {
    clients: Clients,
    /// Most bytes of tables and connections, and most packet buffers, in the second half.
    bytes: usize,
    buffers: usize,
    /// The same in the first half.
    early: (usize, usize),
    cookies: u64,
}

/// Honest clients for a while, and `flood` spoofed SYNs in each step.
fn run(arch: Architecture, flood: usize) -> Outcome {
    let live = pktbuf::live();
    let mut node = routed(arch, |terms| {
        terms.tcp.syn_backlog = PLACES;
        terms.tcp.syn_cookies = SynCookies::WhenFull;
        // Connections of honest clients in TIME-WAIT would distort the measurement.
        terms.tcp.max_time_wait = 0;
    });
    let listener = node.listen(PORT, 64);
    let mut clients = Clients::new(HONEST, node.clock.now());
    let mut draw = Draw(7);
    let mut halves = [(0, 0); 2];
    for step in 0..STEPS {
        clients.act(&mut node);
        for _ in 0..flood {
            let (host, port) = draw.stranger();
            node.put(&Segment::syn(port, PORT).frame_from(host));
        }
        loop {
            let frames = node.settle();
            clients.hear(&mut node, &frames);
            clients.serve(&node, &listener);
            if frames.is_empty() {
                break;
            }
        }
        let half = &mut halves[step * 2 / STEPS];
        half.0 = half.0.max(node.stack.stats().bytes);
        half.1 = half.1.max(pktbuf::live() - live);
        node.clock.advance(STEP);
    }
    let cookies = node.stack.stats().counters.get(Counter::SynCookiesOut);
    Outcome { clients, bytes: halves[1].0, buffers: halves[1].1, early: halves[0], cookies }
}

/// 20,000 SYNs a second at fifty for each honest one: no honest client fails or waits, and memory stops growing once
/// the places are taken.
#[every_arch]
fn a_flood_of_syns_costs_honest_clients_nothing(arch: Architecture) {
    let _turn = turn();
    let calm = run(arch, 0);
    let flooded = run(arch, 200);
    let (done, under) = (calm.clients.answered, flooded.clients.answered);
    assert!(done >= STEPS * usize::from(HONEST) / 2, "the control works: {done}");
    assert!(under * 10 >= done * 8, "{under} answers under the flood, {done} without");
    assert!(flooded.clients.bytes * 10 >= calm.clients.bytes * 8);
    assert_eq!((flooded.clients.refused, flooded.clients.repeated), (0, 0), "failures and repetitions");
    assert!(flooded.cookies > 1000, "{} cookies: the flood fills every place", flooded.cookies);
    let cap = calm.bytes + PLACES as usize * if arch.properties().groups { 2400 } else { 160 };
    assert!(flooded.bytes <= cap, "{} bytes, {} without the flood", flooded.bytes, calm.bytes);
    // With many groups there are always some in which a tuple is the first.
    let share = if arch.properties().groups { 2 } else { 10 };
    let early = flooded.early.0;
    assert!(flooded.bytes <= early + early / share + 4096, "{} grows from {early}", flooded.bytes);
    assert!(flooded.buffers <= flooded.early.1 + 64, "{} buffers, {} before", flooded.buffers, flooded.early.1);
}
