//! A panic in a handler ends its connection with a reset, and is counted; others go on. Also in a stack that its user
//! polls, which passes its own panics on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use every_arch::every_arch;
use observe::Counter;
use stack::{Architecture, FaultScope};
use sync::Real;
use testbed::frames::{self, Ends};
use testbed::node::{Node, NodeConfig};
use testbed::panicking::{MARK, PanicSwitch, PanickingDevice, mute};
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

/// A node that knows its peer and contains panics, and the switch of its device.
fn node_that_panics(arch: Architecture) -> (Node<Real>, Arc<PanicSwitch>) {
    let mut switch = None;
    let terms = NodeConfig { contain: true, ..NodeConfig::new(arch) };
    let mut node = Node::<Real>::with_device(terms, |near| {
        let (device, plant) = PanickingDevice::new(near);
        switch = Some(plant);
        Box::new(device)
    });
    node.exchange(&frames::arp_request());
    node.exchange(&frames::neighbour_solicitation());
    (node, switch.expect("the device is wrapped"))
}

/// A panic of the stack itself, in a device that is given a segment: the handler of that connection is told that it is
/// closed, as its last callback, and is dropped; others go on. So it is if the reset panics, too. Nothing is left in the
/// account.
#[every_arch]
fn a_panic_of_the_stack_is_the_last_that_a_handler_is_told(arch: Architecture) {
    mute();
    for (ends, resets) in Ends::BOTH_FAMILIES.into_iter().flat_map(|ends| [(ends, 0), (ends, 1)]) {
        let (mut node, switch) = node_that_panics(arch);
        let (log, life, closed_at) = (Log::default(), Arc::new(()), Arc::new(Mutex::new(None)));
        let (owned, at) = (life.clone(), closed_at.clone());
        let _listener = serve(&node, &log, move |conn, seen| {
            let _owned = &owned;
            if let Seen::Closed(_) = seen {
                *at.lock().expect("no panic") = Some(conn.now());
            }
            if let Seen::Data(data) = seen {
                let _ = conn.send(data);
            }
        });
        let (mut one, _) = Peer::connect(&mut node, ends, 2000);
        let (mut other, _) = Peer::connect(&mut node, ends, 2001);
        seen(&log);
        let handlers = Arc::strong_count(&life);
        assert_eq!(node.stack.shared().control().memory(), 0);
        switch.transmit.store(1, Ordering::Relaxed);
        switch.reset.store(resets, Ordering::Relaxed);
        // Where the event is a segment, the thread that polls gets the panic, after the connection has ended.
        let _ = catch_unwind(AssertUnwindSafe(|| one.say(&mut node, TcpFlags::PSH, MARK)));
        node.settle();
        let expected = [Seen::Data(MARK.to_vec()), Seen::Closed(Err(tcp::Error::Aborted))];
        assert_eq!(seen(&log), expected.map(|seen| (2000, seen)), "{arch}");
        assert_eq!(Arc::strong_count(&life), handlers - 1, "its handler is dropped");
        assert_eq!(*closed_at.lock().expect("no panic"), Some(node.clock.now()), "{arch}");
        assert_eq!(switch.reset.load(Ordering::Relaxed), 0);
        assert_eq!(node.stack.shared().control().memory(), 0, "{arch}");
        assert_eq!(data_of(&other.say(&mut node, TcpFlags::PSH, b"echo")), b"echo");
        assert_eq!(node.stack.stats().connections, 1);
    }
}

/// So it is if an acknowledgement of the peer sends the data at which the device panics: the handler's last callback has the
/// time of that event.
#[every_arch]
fn a_handler_learns_of_a_panic_at_the_time_of_the_event(arch: Architecture) {
    mute();
    for ends in Ends::BOTH_FAMILIES {
        let (mut node, switch) = node_that_panics(arch);
        let (log, closed_at) = (Log::default(), Arc::new(Mutex::new(None)));
        let at = closed_at.clone();
        let _listener = serve(&node, &log, move |conn, seen| match seen {
            Seen::Data(_) => assert_eq!(conn.send(MARK), Ok(MARK.len())),
            Seen::Closed(_) => *at.lock().expect("no panic") = Some(conn.now()),
            _ => {}
        });
        let (mut peer, _) = Peer::connect(&mut node, ends, 2000);
        peer.window = 0;
        assert_eq!(data_of(&peer.say(&mut node, TcpFlags::PSH, b"go")), b"", "the peer's window is closed");
        switch.transmit.store(1, Ordering::Relaxed);
        node.clock.advance(Duration::from_millis(20));
        peer.window = 60_000;
        let _ = catch_unwind(AssertUnwindSafe(|| peer.say(&mut node, TcpFlags::NONE, b"")));
        node.settle();
        assert_eq!(switch.transmit.load(Ordering::Relaxed), 0, "{arch}");
        let last = seen(&log).pop().expect("it was called");
        assert_eq!(last, (2000, Seen::Closed(Err(tcp::Error::Aborted))), "{arch}");
        assert_eq!(*closed_at.lock().expect("no panic"), Some(node.clock.now()), "{arch}");
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
