//! A panic in a handler ends its connection with a reset, and is counted; others go on. Also in a stack that its user
//! polls, which passes its own panics on.

use std::time::Duration;

use every_arch::every_arch;
use observe::Counter;
use stack::{Architecture, FaultScope};
use testbed::frames::Ends;
use testbed::panicking::mute;
use wire::tcp::TcpFlags;

use super::scene::{Log, Peer, Seen, data_of, node, seen, serve};

#[every_arch]
fn a_panic_resets_its_connection_and_no_other(arch: Architecture) {
    mute();
    for ends in Ends::BOTH_FAMILIES {
        let (mut node, log) = (node(arch), Log::default());
        let _listener = serve(&node, &log, |conn, seen| match seen {
            Seen::Data(data) if data == b"panic" => {
                conn.send(b"half an answer").expect("room");
                conn.set_timer(Some(Duration::from_millis(1)));
                panic!("planted");
            }
            Seen::Data(data) => drop(conn.send(data)),
            _ => {}
        });
        let (mut one, _) = Peer::connect(&mut node, ends, 2000);
        let (mut other, _) = Peer::connect(&mut node, ends, 2001);
        seen(&log);
        // All in one batch: segments after the panic are served.
        let (bad, good) = (one.frame(TcpFlags::PSH, b"panic"), other.frame(TcpFlags::PSH, b"echo"));
        node.put(&bad);
        node.put(&good);
        let frames = node.settle();
        let reset = one.hear(&frames);
        assert!(reset.last().is_some_and(|(header, _)| header.flags.contains(TcpFlags::RST)), "{reset:?}");
        assert_eq!(data_of(&other.hear(&frames)), b"echo");
        node.pass(Duration::from_millis(50), Duration::from_millis(1));
        let expected = [(2000, Seen::Data(b"panic".to_vec())), (2001, Seen::Data(b"echo".to_vec()))];
        assert_eq!(seen(&log), expected, "the panicked handler is called no more");
        let stats = node.stack.stats();
        assert_eq!((stats.connections, stats.counters.get(Counter::HandlerPanics)), (1, 1));
        let failures = node.stack.failures();
        let scope = failures.iter().map(|failure| failure.scope.clone()).collect::<Vec<_>>();
        assert!(matches!(&scope[..], [FaultScope::Handler(tuple)] if tuple.remote_port == 2000), "{failures:?}");
        assert_eq!(data_of(&other.say(&mut node, TcpFlags::PSH, b"again")), b"again");
    }
}

/// The panic of the function that makes the handlers is one of the connection's handler.
#[every_arch]
fn a_panic_while_a_handler_is_made_resets_the_connection(arch: Architecture) {
    mute();
    for ends in Ends::BOTH_FAMILIES {
        let mut node = node(arch);
        let any = "[::]:80".parse().expect("an address");
        let make = |_: &_| panic!("planted");
        let _listener = node.stack.listen_with_handlers(any, 8, Default::default(), make).expect("the port is free");
        let (_, heard) = Peer::connect(&mut node, ends, 2000);
        assert!(heard.iter().any(|(header, _)| header.flags.contains(TcpFlags::RST)), "{heard:?}");
        let stats = node.stack.stats();
        assert_eq!((stats.connections, stats.counters.get(Counter::HandlerPanics)), (0, 1));
    }
}
