//! Honest clients: each opens a connection, sends a request, reads the answer, closes, and begins again. Their
//! throughput in virtual time measures the effect of an attack.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use observe::Time;
use stack::call::Call;
use stack::socket::{ListenerShared, TcpSocket};
use sync::Real;
use testbed::frames::Segment;
use testbed::node::{Node, received, send};
use wire::tcp::TcpFlags;

use super::peers::{PORT, answer};

/// The request of a client.
const REQUEST: &[u8] = b"the page, please";
/// Bytes of an answer: three segments.
pub const ANSWER: usize = 1400;
/// A client whose SYN or request is not answered sends it again after this long.
const REPEAT_AFTER: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
enum Stage {
    Idle,
    /// A SYN was sent.
    Opening,
    /// The request was sent; the next byte that is expected.
    Asking(u32),
}

struct Client {
    host: Ipv4Addr,
    port: u16,
    stage: Stage,
    since: Time,
    got: usize,
}

/// Clients and their server.
pub struct Clients {
    clients: Vec<Client>,
    children: Vec<Arc<TcpSocket<Real>>>,
    /// Answers that were read completely.
    pub answered: usize,
    /// Bytes of answers.
    pub bytes: usize,
    /// SYNs and requests that were sent again.
    pub repeated: usize,
    /// Connections that were reset.
    pub refused: usize,
}

impl Clients {
    pub fn new(count: u8, now: Time) -> Clients {
        let client =
            |n| Client { host: Ipv4Addr::new(192, 168, 7, n), port: 2000, stage: Stage::Idle, since: now, got: 0 };
        let clients = (1..=count).map(client).collect();
        Clients { clients, children: Vec::new(), answered: 0, bytes: 0, repeated: 0, refused: 0 }
    }

    /// Idle clients begin; clients that have waited too long retransmit.
    pub fn act(&mut self, node: &mut Node<Real>) {
        let now = node.clock.now();
        for client in &mut self.clients {
            let late = now - client.since >= REPEAT_AFTER;
            if late && !matches!(client.stage, Stage::Idle) {
                self.repeated += 1;
            } else if !matches!(client.stage, Stage::Idle) {
                continue;
            }
            client.since = now;
            if let Stage::Asking(ack) = client.stage {
                node.put(&Segment::data((client.port, PORT), 0, ack, REQUEST).frame_from(client.host));
                continue;
            }
            if matches!(client.stage, Stage::Idle) {
                client.port += 1;
                client.got = 0;
            }
            client.stage = Stage::Opening;
            node.put(&Segment::syn(client.port, PORT).frame_from(client.host));
        }
    }

    /// The server answers each request, and closes.
    pub fn serve(&mut self, node: &Node<Real>, listener: &ListenerShared<Real>) {
        while let Some(child) = listener.accept() {
            self.children.push(child);
        }
        self.children.retain(|child| {
            let Some((data, _)) = received(node.call(child, Call::Receive(tcp::Receive { max: 100 }))) else {
                return true;
            };
            assert_eq!(data, REQUEST, "nobody else's text");
            node.call(child, send(&[7; ANSWER]));
            node.call(child, Call::Close(tcp::Close));
            false
        });
    }

    /// Processes frames of the stack: clients answer those for them.
    pub fn hear(&mut self, node: &mut Node<Real>, sent: &[Vec<u8>]) {
        for frame in sent {
            let Some((to, header, data)) = answer(frame) else { continue };
            let Some(client) = self.clients.iter_mut().find(|client| (client.host, client.port) == to) else {
                continue;
            };
            if header.flags.contains(TcpFlags::RST) {
                self.refused += 1;
                client.stage = Stage::Idle;
                continue;
            }
            match client.stage {
                Stage::Opening if header.flags.contains(TcpFlags::SYN) => {
                    let ack = header.seq.0.wrapping_add(1);
                    client.stage = Stage::Asking(ack);
                    client.since = node.clock.now();
                    node.put(&Segment::data((to.1, PORT), 0, ack, REQUEST).frame_from(to.0));
                }
                Stage::Asking(expected) if header.seq.0 == expected => {
                    client.got += data.len();
                    self.bytes += data.len();
                    let fin = header.flags.contains(TcpFlags::FIN);
                    let next = expected.wrapping_add(data.len() as u32 + u32::from(fin));
                    client.stage = if fin { Stage::Idle } else { Stage::Asking(next) };
                    if fin {
                        assert_eq!(client.got, ANSWER, "a whole answer");
                        self.answered += 1;
                    }
                    let at = REQUEST.len() as u32;
                    let reply = Segment::data((to.1, PORT), at, next, &[]);
                    node.put(&if fin { reply.and(TcpFlags::FIN) } else { reply }.frame_from(to.0));
                }
                _ => {}
            }
        }
    }
}
