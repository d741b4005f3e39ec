//! A stack whose listener gives connections handlers, peers, and a handler that records its callbacks.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use pktbuf::PktBuf;
use stack::Architecture;
use stack::socket::ListenerShared;
use stack::socket::handler::{Conn, ConnectionHandler, HandlerMessage};
use sync::Real;
use testbed::frames::{self, Ends, ISS, Segment, TcpOptions, tcp_of};
use testbed::node::{Node, NodeConfig};
use wire::tcp::{Header, TcpFlags};

pub const PORT: u16 = 80;

/// A callback, and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    Open,
    Data(Vec<u8>),
    End,
    Writable,
    Timer,
    Message(&'static str),
    Closed(Result<(), tcp::Error>),
}

/// The callbacks of handlers, in order, each with the peer's port.
pub type Log = Arc<Mutex<Vec<(u16, Seen)>>>;

/// Those so far; the log is empty then.
pub fn seen(log: &Log) -> Vec<(u16, Seen)> {
    std::mem::take(&mut log.lock().expect("no test panics with the log"))
}

/// Records each callback, and then acts on it.
pub struct Scripted<A> {
    pub log: Log,
    pub act: A,
}

impl<A: FnMut(&mut Conn<'_, Real>, &Seen) + Send + 'static> Scripted<A> {
    pub fn boxed(log: &Log, act: A) -> Box<dyn ConnectionHandler<Real>> {
        Box::new(Scripted { log: log.clone(), act })
    }

    fn see(&mut self, conn: &mut Conn<'_, Real>, seen: Seen) {
        self.log.lock().expect("no test panics with the log").push((conn.peer_addr().port(), seen.clone()));
        (self.act)(conn, &seen);
    }
}

impl<A: FnMut(&mut Conn<'_, Real>, &Seen) + Send + 'static> ConnectionHandler<Real> for Scripted<A> {
    fn open(&mut self, conn: &mut Conn<'_, Real>) {
        self.see(conn, Seen::Open);
    }

    fn data(&mut self, conn: &mut Conn<'_, Real>, data: PktBuf) {
        self.see(conn, Seen::Data(data.to_vec()));
    }

    fn end(&mut self, conn: &mut Conn<'_, Real>) {
        self.see(conn, Seen::End);
    }

    fn writable(&mut self, conn: &mut Conn<'_, Real>) {
        self.see(conn, Seen::Writable);
    }

    fn timer(&mut self, conn: &mut Conn<'_, Real>) {
        self.see(conn, Seen::Timer);
    }

    fn message(&mut self, conn: &mut Conn<'_, Real>, message: HandlerMessage) {
        let text = message.downcast::<&'static str>().expect("tests post strings");
        self.see(conn, Seen::Message(*text));
    }

    fn closed(&mut self, conn: &mut Conn<'_, Real>, outcome: Result<(), tcp::Error>) {
        self.see(conn, Seen::Closed(outcome));
    }
}

/// A stack that knows its peer over both families.
pub fn node(arch: Architecture) -> Node<Real> {
    let mut node = Node::with_known_peer(NodeConfig::new(arch));
    node.exchange(&frames::neighbour_solicitation());
    node
}

/// A listener whose connections get handlers that record, and act by clones of `act`.
pub fn serve(
    node: &Node<Real>,
    log: &Log,
    act: impl FnMut(&mut Conn<'_, Real>, &Seen) + Clone + Send + Sync + 'static,
) -> Arc<ListenerShared<Real>> {
    let any = "[::]:80".parse().expect("an address");
    let log = log.clone();
    let make = move |_: &_| Scripted::boxed(&log, act.clone());
    node.stack.listen_with_handlers(any, 8, Default::default(), make).expect("the port is free")
}

/// The other end of a connection.
pub struct Peer {
    pub ends: Ends,
    pub port: u16,
    /// Sequence numbers sent, from the SYN on.
    pub sent: u32,
    /// The next sequence number expected.
    pub expects: u32,
    pub window: u16,
}

/// A segment that the stack sent to a peer.
pub type Heard = (Header, Vec<u8>);

impl Peer {
    /// Connects to [`PORT`]. The segments that follow the handshake are returned.
    pub fn connect(node: &mut Node<Real>, ends: Ends, port: u16) -> (Peer, Vec<Heard>) {
        let most = TcpOptions::new(&[2, 4, 0x05, 0x78]);
        let answers = node.exchange(&Segment::syn(port, PORT).options(most).frame_over(ends));
        let expects = tcp_of(&answers[0]).expect("a SYN-ACK").0.seq.0.wrapping_add(1);
        let mut peer = Peer { ends, port, sent: 1, expects, window: 60_000 };
        let heard = peer.say(node, TcpFlags::NONE, b"");
        (peer, heard)
    }

    /// The frame of a segment with ACK.
    pub fn frame(&mut self, flags: TcpFlags, data: &[u8]) -> Vec<u8> {
        let (ports, seq) = ((self.port, PORT), ISS.wrapping_add(self.sent));
        self.sent += data.len() as u32 + u32::from(flags.contains(TcpFlags::FIN));
        let segment = Segment { data, ..Segment::ack(ports, seq, self.expects) };
        segment.and(flags).window(self.window).frame_over(self.ends)
    }

    /// Sends a segment, and returns the segments to this peer that follow at once.
    pub fn say(&mut self, node: &mut Node<Real>, flags: TcpFlags, data: &[u8]) -> Vec<Heard> {
        let frame = self.frame(flags, data);
        node.put(&frame);
        self.listen(node)
    }

    /// The segments that the stack sends to this peer now.
    pub fn listen(&mut self, node: &mut Node<Real>) -> Vec<Heard> {
        let frames = node.settle();
        self.hear(&frames)
    }

    /// Lets `span` pass; returns the segments that the stack sends to this peer meanwhile.
    pub fn wait(&mut self, node: &mut Node<Real>, span: Duration) -> Vec<Heard> {
        let frames = node.pass(span, Duration::from_millis(1));
        self.hear(&frames)
    }

    /// The segments to this peer among `frames`; data and FIN in order are accepted.
    pub fn hear(&mut self, frames: &[Vec<u8>]) -> Vec<Heard> {
        let mut heard = Vec::new();
        for (header, data) in frames.iter().filter_map(|frame| tcp_of(frame)) {
            if header.dst_port != self.port {
                continue;
            }
            if header.seq.0 == self.expects {
                let fin = u32::from(header.flags.contains(TcpFlags::FIN));
                self.expects = self.expects.wrapping_add(data.len() as u32 + fin);
            }
            heard.push((header, data.to_vec()));
        }
        heard
    }
}

/// The data of segments, joined.
pub fn data_of(heard: &[Heard]) -> Vec<u8> {
    heard.iter().flat_map(|(_, data)| data.clone()).collect()
}
