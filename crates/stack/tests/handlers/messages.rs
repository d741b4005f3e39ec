//! A handler acts on another connection by a message to that one's handler, delivered after the guards, in order, in
//! whichever cells the two are.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use every_arch::every_arch;
use stack::Architecture;
use stack::socket::handler::{HandlerRef, PostRefused};
use sync::Real;
use sync::walk::{WalkStep, record};
use testbed::frames::Ends;
use wire::tcp::TcpFlags;

use super::scene::{Log, Peer, Seen, data_of, node, seen, serve};

type Names = Arc<Mutex<HashMap<u16, HandlerRef<Real>>>>;

/// Each connection passes its data to the next, until it is back: over every pair of cells.
#[every_arch]
fn a_message_goes_round_all_connections(arch: Architecture) {
    const PEERS: u16 = 8;
    for ends in Ends::BOTH_FAMILIES {
        let (mut node, log) = (node(arch), Log::default());
        let names = Names::default();
        let known = names.clone();
        let _listener = serve(&node, &log, move |conn, seen| {
            let port = conn.peer_addr().port();
            let known = || known.lock().expect("no handler panics");
            match seen {
                Seen::Open => drop(known().insert(port, conn.name())),
                Seen::Data(_) | Seen::Message("pass on") => {
                    let next = known()[&(2000 + (port - 2000 + 1) % PEERS)].clone();
                    let last = matches!(seen, Seen::Message(_)) && port == 2000 + PEERS - 1;
                    conn.post(&next, Box::new(if last { "done" } else { "pass on" }));
                    // Two messages keep their order.
                    conn.post(&next, Box::new("and another"));
                    conn.send(b"passed").expect("room");
                }
                _ => {}
            }
        });
        let mut peers: Vec<_> = (0..PEERS).map(|n| Peer::connect(&mut node, ends, 2000 + n).0).collect();
        seen(&log);
        let question = peers[0].frame(TcpFlags::PSH, b"question");
        node.put(&question);
        let frames = node.settle();
        for peer in &mut peers {
            assert_eq!(data_of(&peer.hear(&frames)), b"passed", "{}", peer.port);
        }
        let seen = seen(&log);
        assert_eq!(seen[0], (2000, Seen::Data(b"question".to_vec())));
        for port in 2000..2000 + PEERS {
            let messages: Vec<_> =
                seen[1..].iter().filter(|(to, _)| *to == port).map(|(_, seen)| seen.clone()).collect();
            let first = if port == 2000 { "done" } else { "pass on" };
            assert_eq!(messages, [Seen::Message(first), Seen::Message("and another")], "{port}");
        }
    }
}

/// Two handlers that answer each other's messages for long: however many, one is delivered after the other, and not within
/// its delivery, for which no thread's stack would suffice.
#[every_arch]
fn a_long_exchange_of_messages_takes_no_stack(arch: Architecture) {
    const MESSAGES: usize = 30_000;
    for ends in Ends::BOTH_FAMILIES {
        let (mut node, log) = (node(arch), Log::default());
        let (names, left) = (Names::default(), Arc::new(AtomicUsize::new(MESSAGES)));
        let (known, counts) = (names.clone(), left.clone());
        let _listener = serve(&node, &log, move |conn, seen| {
            let port = conn.peer_addr().port();
            let known = || known.lock().expect("no handler panics");
            let goes_on = || counts.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
            match seen {
                Seen::Open => drop(known().insert(port, conn.name())),
                Seen::Data(_) | Seen::Message(_) if goes_on() => {
                    let other = known()[&(4001 - port)].clone();
                    conn.post(&other, Box::new("again"));
                }
                _ => {}
            }
        });
        let [mut one, _] = [2000, 2001].map(|port| Peer::connect(&mut node, ends, port).0);
        seen(&log);
        one.say(&mut node, TcpFlags::PSH, b"begin");
        assert_eq!((left.load(Relaxed), seen(&log).len()), (0, MESSAGES + 1), "{arch}");
    }
}

/// Any thread may post to a connection that exists. A message for one that is over comes back.
#[every_arch]
fn a_post_from_outside_reaches_the_handler_until_it_is_over(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let (mut node, log) = (node(arch), Log::default());
        let names = Names::default();
        let known = names.clone();
        let _listener = serve(&node, &log, move |conn, seen| match seen {
            Seen::Open => drop(known.lock().expect("no handler panics").insert(0, conn.name())),
            Seen::Message("close") => conn.close(),
            Seen::Message("post") => {
                let refused = conn.name().post(Box::new("from inside"));
                assert!(matches!(refused, Err(PostRefused::InHandler(_))), "{refused:?}");
            }
            _ => {}
        });
        let (mut peer, _) = Peer::connect(&mut node, ends, 2000);
        let name = names.lock().expect("no handler panics")[&0].clone();
        seen(&log);
        for text in ["post", "close", "too late"] {
            let posted = name.post(Box::new(text));
            let heard = peer.listen(&mut node);
            match text {
                "too late" => assert!(matches!(posted, Err(PostRefused::Closed(_))), "{posted:?}"),
                "close" => assert!(heard.iter().any(|(header, _)| header.flags.contains(TcpFlags::FIN)), "{heard:?}"),
                _ => assert!(heard.is_empty()),
            }
        }
        let expected = [Seen::Message("post"), Seen::Message("close"), Seen::Closed(Ok(()))];
        assert_eq!(seen(&log), expected.map(|seen| (2000, seen)));
        assert!(name.is_closed());
        // The end: FIN acknowledged, and the peer's own.
        peer.say(&mut node, TcpFlags::FIN, b"");
        assert_eq!(seen(&log), []);
    }
}

/// What the effects of a message leave in the queue of the same core is run in the same turn of its protocol thread: one switch of
/// stacks for both.
#[every_arch(only(connp_t_lwkt))]
fn a_protocol_thread_goes_on_with_what_its_effects_have_queued(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let (mut node, log) = (node(arch), Log::default());
        let names = Names::default();
        let known = names.clone();
        let _listener = serve(&node, &log, move |conn, seen| {
            let known = || known.lock().expect("no handler panics");
            match seen {
                Seen::Open => drop(known().insert(conn.peer_addr().port(), conn.name())),
                Seen::Data(_) => {
                    let next = known()[&2001].clone();
                    conn.post(&next, Box::new("pass on"));
                }
                _ => {}
            }
        });
        let [mut one, _] = [2000, 2001].map(|port| Peer::connect(&mut node, ends, port).0);
        seen(&log);
        let question = one.frame(TcpFlags::PSH, b"question");
        node.put(&question);
        let (taken, walk) = record(|| node.driver.poll());
        assert_eq!(taken, 1);
        assert_eq!(seen(&log), [(2000, Seen::Data(b"question".to_vec())), (2001, Seen::Message("pass on"))]);
        let switches =
            |step: &&WalkStep| matches!(step, WalkStep::Note { text, .. } if text.starts_with("switches to the stack"));
        assert_eq!(walk.iter().filter(switches).count(), 1, "{walk:?}");
    }
}
