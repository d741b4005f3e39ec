//! A handler must not block or call the stack: such calls are refused, and nothing hangs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use every_arch::every_arch;
use stack::call::{Call, Reply};
use stack::socket::Readiness;
use stack::stack::ConnectRefused;
use stack::{Architecture, BindRefused};
use testbed::frames::Ends;
use testbed::node::send;
use wire::tcp::TcpFlags;

use super::scene::{Log, Peer, Seen, data_of, node, seen, serve};

#[every_arch]
fn calls_of_a_handler_are_refused(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let (mut node, log) = (node(arch), Log::default());
        // A connection of a user, on another listener and, where there are several, perhaps in another cell.
        let sockets: Vec<_> = (0..8)
            .map(|n| {
                node.stack.connect(None, SocketAddr::new(ends.src, 100 + n), &Default::default()).expect("a route")
            })
            .collect();
        let datagrams = node.stack.bind_udp(SocketAddr::new(ends.dst, 53)).expect("the port is free");
        node.settle();
        let (stack, others) = (node.stack.clone(), Arc::new(sockets));
        let remote = SocketAddr::new(ends.src, 99);
        let _listener = serve(&node, &log, move |conn, seen| {
            if !matches!(seen, Seen::Data(_)) {
                return;
            }
            for socket in others.iter() {
                assert!(matches!(stack.call(&socket.target(), send(b"x")), Reply::Gone));
                assert!(matches!(stack.call(&socket.target(), Call::Status(tcp::Status)), Reply::Gone));
                assert!(stack.receive(&socket.target(), tcp::Receive { max: 1 }, &mut Default::default()).is_none());
                // Would sleep for ever.
                assert_eq!(socket.ready.wait(Readiness::READABLE, None), Readiness::NONE);
            }
            let refused = stack.connect(None, remote, &Default::default()).err();
            assert_eq!(refused, Some(ConnectRefused::InHandler));
            assert!(refused.is_some_and(|refused| refused.to_string().starts_with("a handler must not block")));
            let refused = stack.listen("[::]:81".parse().expect("an address"), 1, Default::default()).err();
            assert_eq!(refused, Some(BindRefused::InHandler));
            let datagram = pktbuf::PktBuf::from_slice(b"x").expect("a buffer");
            assert!(stack.send_udp(&datagrams, datagram, Some(remote)).is_err());
            conn.send(b"answer").expect("its own connection is its own");
        });
        let (mut peer, _) = Peer::connect(&mut node, ends, 2000);
        let heard = peer.say(&mut node, TcpFlags::PSH, b"question");
        assert_eq!(data_of(&heard), b"answer");
        assert_eq!(seen(&log), [Seen::Open, Seen::Data(b"question".to_vec())].map(|seen| (2000, seen)));
        // The thread that ran the handler is not marked for ever.
        assert!(node.stack.connect(None, remote, &Default::default()).is_ok());
        node.pass(Duration::from_millis(1), Duration::from_millis(1));
        assert_eq!(node.stack.failures(), []);
    }
}
