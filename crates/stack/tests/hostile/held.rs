//! Connections of many hostile clients, the service that honest clients get beside them, and a check that nothing is
//! left of them.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use stack::Architecture;
use stack::call::Call;
use stack::socket::TcpSocket;
use sync::Real;
use tcp::config::BufferSizes;
use testbed::frames::Segment;
use testbed::node::Node;

use super::clients::Clients;
use super::peers::{PORT, answer, routed};

/// Send and receive buffer of every connection.
pub const BUFFER: u32 = 8 << 10;

/// A connection, and its client's side.
pub struct Held {
    pub socket: Arc<TcpSocket<Real>>,
    pub from: (Ipv4Addr, u16),
    /// The next sequence number that the client has not acknowledged.
    pub next: u32,
    /// Bytes that the client has sent.
    pub sent: u32,
}

/// The `n`-th of the clients.
pub fn host(n: usize) -> (Ipv4Addr, u16) {
    (Ipv4Addr::new(172, 16, (n >> 8) as u8, n as u8), 4000)
}

/// A stack whose connections have small buffers.
pub fn small(arch: Architecture) -> Node<Real> {
    routed(arch, |terms| {
        let sizes = BufferSizes { min: 4096, initial: BUFFER, max: BUFFER };
        (terms.tcp.send_buffer, terms.tcp.receive_buffer) = (sizes, sizes);
        terms.tcp.max_time_wait = 0;
    })
}

/// Connections of `count` clients with this window.
pub fn open(node: &mut Node<Real>, count: usize, window: u16) -> Vec<Held> {
    let listener = node.listen(PORT, 8);
    let mut held = Vec::new();
    for from in (0..count).map(host) {
        let answers = node.exchange(&Segment::syn(from.1, PORT).window(window).frame_from(from.0));
        let next = answer(&answers[0]).expect("a SYN-ACK").1.seq.0.wrapping_add(1);
        node.exchange(&Segment::data((from.1, PORT), 0, next, &[]).window(window).frame_from(from.0));
        held.push(Held { socket: listener.accept().expect("a child waits"), from, next, sent: 0 });
    }
    node.stack.unlisten(&listener);
    held
}

/// Their users close them all.
pub fn close(node: &Node<Real>, held: &[Held]) {
    for Held { socket, .. } in held {
        node.call(socket, Call::Close(tcp::Close));
    }
}

/// The number of answers that honest clients get in a second.
fn goodput(node: &mut Node<Real>) -> usize {
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

/// The state before the attack.
pub struct Before {
    /// Packet buffers.
    pub buffers: usize,
    /// Bytes of tables.
    pub tables: usize,
    /// Answers that honest clients got.
    alone: usize,
}

impl Before {
    /// Measures a stack that has no connection yet.
    pub fn measure(node: &mut Node<Real>) -> Before {
        let buffers = pktbuf::live();
        let alone = goodput(node);
        Before { buffers, tables: node.stack.stats().bytes, alone }
    }

    /// Honest clients still get nine tenths of that.
    pub fn honest_notice_nothing(&self, node: &mut Node<Real>) {
        let (beside, alone) = (goodput(node), self.alone);
        assert!(beside * 10 >= alone * 9, "{beside} answers beside the attack, {alone} without");
    }

    /// Bytes of tables and packet buffers above those before the attack.
    pub fn pinned(&self, node: &Node<Real>) -> usize {
        node.stack.stats().bytes.saturating_sub(self.tables) + pktbuf::live().saturating_sub(self.buffers) * 2048
    }

    /// Nothing is left of the connections.
    pub fn nothing_is_left(&self, node: &Node<Real>, held: Vec<Held>) {
        assert_eq!(node.stack.stats().connections, 0, "of {}", held.len());
        drop(held);
        assert_eq!(pktbuf::live(), self.buffers);
    }
}
