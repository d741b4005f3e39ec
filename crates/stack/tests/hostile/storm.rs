//! Two desynchronised ends (an ACK storm): each has accepted data that the other never sent, so each finds the other's
//! acknowledgements unacceptable and answers them. Without a limit they would do that for ever, at the speed of the
//! link.

use std::time::Duration;

use every_arch::every_arch;
use stack::Architecture;
use stack::call::Call;
use sync::Real;
use testbed::frames::{Frame, PEER, Packet, STACK, Segment, tcp_of};
use testbed::node::{Node, NodeConfig, received, send};
use wire::tcp::{Options, SackBlocks, TcpFlags};
use wire::{ethernet, ipv4};

use super::peers::{PORT, turn};

/// Two stacks; the test is their link.
struct Ends {
    a: Node<Real>,
    b: Node<Real>,
    /// The last segment that each has sent.
    last: [Vec<u8>; 2],
    /// Segments that have crossed.
    crossed: usize,
}

impl Ends {
    fn new(arch: Architecture) -> Ends {
        let a = Node::new(NodeConfig::new(arch));
        let terms = NodeConfig { second: true, addresses: vec![(PEER.into(), 24)], seed: 2, ..NodeConfig::new(arch) };
        Ends { a, b: Node::new(terms), last: [Vec::new(), Vec::new()], crossed: 0 }
    }

    /// Delivers each stack's frames to the other, until none sends any more.
    fn settle(&mut self) {
        let mut rounds = 0;
        loop {
            let (from_a, from_b) = (self.a.settle(), self.b.settle());
            if from_a.is_empty() && from_b.is_empty() {
                return;
            }
            for (to, frames, last) in [(&mut self.b, from_a, 0), (&mut self.a, from_b, 1)] {
                for frame in frames {
                    to.put(&frame);
                    if tcp_of(&frame).is_some() {
                        self.crossed += 1;
                        self.last[last] = frame;
                    }
                }
            }
            rounds += 1;
            assert!(rounds < 1000, "they never stop");
        }
    }

    /// Advances both clocks together.
    fn pass(&mut self, span: Duration) {
        let end = self.a.clock.now() + span;
        while self.a.clock.now() < end {
            self.a.clock.advance(Duration::from_millis(10));
            self.b.clock.advance(Duration::from_millis(10));
            self.settle();
        }
    }
}

/// A forged segment with `data` after `last`, from the sender of `last`.
fn forged(last: &[u8], data: &[u8]) -> Vec<u8> {
    let (header, sent) = tcp_of(last).expect("a segment");
    let options = Options { sack: SackBlocks::EMPTY, ..header.options };
    let seq = header.seq.0.wrapping_add(sent.len() as u32);
    let flags = TcpFlags::ACK | TcpFlags::PSH;
    let ip = ipv4::parse(&last[ethernet::HEADER_LEN..]).expect("IPv4");
    let (link, _) = ethernet::parse(last).expect("a frame");
    let segment = Segment { seq, flags, ..Segment::of(&header, data) }.options(options);
    Frame::new(link.src, link.dst, Packet::new(ip.src, ip.dst, segment)).bytes()
}

#[every_arch]
fn ends_that_were_desynchronised_do_not_storm(arch: Architecture) {
    let _turn = turn();
    let mut ends = Ends::new(arch);
    let listener = ends.a.listen(PORT, 8);
    let remote = std::net::SocketAddr::new(STACK.into(), PORT);
    let client = ends.b.stack.connect(None, remote, &Default::default()).expect("a port is free");
    ends.pass(Duration::from_millis(50));
    let server = listener.accept().expect("a child waits");
    ends.b.call(&client, send(b"hello"));
    ends.settle();
    ends.a.call(&server, send(b"well met"));
    ends.pass(Duration::from_secs(1));
    // An attacker on the path injects data in both directions.
    let (to_b, to_a) = (forged(&ends.last[0], &[b'x'; 100]), forged(&ends.last[1], &[b'y'; 100]));
    ends.a.put(&to_a);
    ends.b.put(&to_b);
    ends.settle();
    let got = received(ends.a.call(&server, Call::Receive(tcp::Receive { max: 1000 })));
    assert_eq!(got.map(|(data, _)| data.len()), Some(105), "the forgery is good, or nothing is tested");
    let before = ends.crossed;
    const SECONDS: usize = 20;
    ends.pass(Duration::from_secs(SECONDS as u64));
    let each = (ends.crossed - before) / 2;
    assert!(each <= 2 * SECONDS + 2, "{each} segments of each end in {SECONDS} s");
}
