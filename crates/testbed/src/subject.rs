//! A stack that is given steps, one at a time, and the outcome of each: frames that it sent, answers that its users
//! got.
//!
//! The same steps under two architectures must give the same outcomes (invariant G3); [`differ`] reports where two runs
//! differ.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use stack::Architecture;
use stack::call::{Call, Reply};
use stack::socket::{ListenerShared, TcpSocket, UdpShared};
use sync::Real;
use tcp::SocketOption;

use crate::frames::{self, tcp_of};
use crate::node::{Node, NodeConfig, send};

/// An input of the stack. Sockets are numbered in the order of their creation.
#[derive(Clone, Debug)]
pub enum Step {
    /// Time passes.
    Pass(Duration),
    /// A frame arrives.
    Frame(Vec<u8>),
    /// A user listens on every address.
    Listen {
        /// The port.
        port: u16,
        /// Children that may wait.
        backlog: usize,
    },
    /// A listener closes.
    Unlisten(usize),
    /// A connection is accepted, if one waits.
    Accept(usize),
    /// A user connects to the peer.
    Connect {
        /// At its IPv6 address.
        v6: bool,
        /// The peer's port.
        port: u16,
    },
    /// A user sends.
    Send {
        /// On this connection.
        socket: usize,
        /// This many bytes.
        len: usize,
    },
    /// A user reads.
    Receive {
        /// From this connection.
        socket: usize,
        /// At most this many bytes.
        max: usize,
    },
    /// A user reports how much of the delivered data is not read yet.
    ReportUnread {
        /// Of this connection.
        socket: usize,
        /// This many bytes.
        bytes: usize,
    },
    /// No more data from this user.
    Shutdown(usize),
    /// A user sets an option.
    Set {
        /// Of this connection.
        socket: usize,
        /// To this value.
        option: SocketOption,
    },
    /// A user closes the connection.
    Close(usize),
    /// A user resets the connection.
    Abort(usize),
    /// A user binds a UDP port.
    Bind(u16),
    /// A user sends a datagram to the peer.
    SendDatagram {
        /// From this socket.
        socket: usize,
        /// To this port.
        port: u16,
        /// This many bytes.
        len: usize,
    },
    /// A user joins or leaves a group.
    Group {
        /// With this datagram socket.
        socket: usize,
        /// This one.
        group: IpAddr,
        /// Joins and does not leave.
        joins: bool,
    },
    /// An administrator sets a route through the link, in the syntax of `ip route`.
    Route(String),
    /// An administrator removes a route, named as for `ip route del`.
    Unroute(String),
    /// An administrator sets a parameter.
    Knob {
        /// By its sysctl's name.
        name: &'static str,
        /// To this.
        value: String,
    },
}

/// The outcome of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The frames that the stack sent, in order.
    pub frames: Vec<Vec<u8>>,
    /// The answer to the user; empty if the step was no call.
    pub answer: String,
}

/// A stack that is given steps.
pub struct Subject {
    /// The stack on its link.
    pub node: Node<Real>,
    remote: [IpAddr; 2],
    /// Listeners in the order of their making.
    pub listeners: Vec<Arc<ListenerShared<Real>>>,
    /// Connections in the order in which users got them.
    pub sockets: Vec<Arc<TcpSocket<Real>>>,
    /// UDP sockets in the order of their making.
    pub datagrams: Vec<Arc<UdpShared<Real>>>,
    written: usize,
}

impl Subject {
    /// The host at [`frames::STACK`].
    pub fn new(arch: Architecture, seed: u64) -> Subject {
        Subject::with(arch, seed, |_| ())
    }

    /// The same after `change` of TCP's parameters.
    pub fn with(arch: Architecture, seed: u64, change: impl FnOnce(&mut tcp::Config)) -> Subject {
        let mut terms = NodeConfig { seed, ..NodeConfig::new(arch) };
        change(&mut terms.tcp);
        Subject::on(terms, "10.0.0.2", "fd00::2")
    }

    /// The other host, at [`frames::PEER`], under the reference architecture.
    pub fn opposite(seed: u64) -> Subject {
        let addresses = vec![(frames::PEER.into(), 24), ("fd00::2".parse().expect("an address"), 64)];
        Subject::on(
            NodeConfig { seed, addresses, second: true, ..NodeConfig::new(Architecture::reference()) },
            "10.0.0.1",
            "fd00::1",
        )
    }

    fn on(mut terms: NodeConfig, v4: &str, v6: &str) -> Subject {
        // Small, so that windows close.
        terms.tcp.receive_buffer = tcp::config::BufferSizes { min: 4 << 10, initial: 16 << 10, max: 32 << 10 };
        let remote = [v4, v6].map(|address| address.parse().expect("an address"));
        let (listeners, sockets, datagrams) = (vec![], vec![], vec![]);
        Subject { node: Node::new(terms), remote, listeners, sockets, datagrams, written: 0 }
    }

    /// Performs `step`, and everything that follows from it at this moment.
    ///
    /// # Panics
    /// If it names a socket that does not exist.
    pub fn step(&mut self, step: &Step) -> Outcome {
        let answer = match step {
            Step::Pass(span) => {
                self.node.clock.advance(*span);
                String::new()
            }
            Step::Frame(frame) => {
                self.node.put(frame);
                String::new()
            }
            _ => self.user(step),
        };
        Outcome { frames: self.node.settle(), answer }
    }

    fn user(&mut self, step: &Step) -> String {
        let stack = self.node.stack.clone();
        match *step {
            Step::Listen { port, backlog } => {
                let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
                let listener = stack.listen(any, backlog, Default::default());
                let answer = format!("{:?}", listener.as_ref().map(|listener| listener.local()));
                self.listeners.extend(listener);
                answer
            }
            Step::Unlisten(listener) => {
                stack.unlisten(&self.listeners[listener]);
                String::new()
            }
            Step::Accept(listener) => {
                let child = self.listeners[listener].accept();
                let answer = format!("{:?}", child.as_ref().map(|child| child.flow()));
                self.sockets.extend(child);
                answer
            }
            Step::Connect { v6, port } => {
                let remote = SocketAddr::new(self.remote[usize::from(v6)], port);
                let socket = stack.connect(None, remote, &Default::default());
                let answer = format!("{:?}", socket.as_ref().map(|socket| socket.flow()));
                self.sockets.extend(socket);
                answer
            }
            Step::Send { socket, len } => {
                let data: Vec<u8> = (0..len).map(|n| (self.written + n) as u8).collect();
                self.written += len;
                self.call(socket, send(&data))
            }
            Step::Receive { socket, max } => self.call(socket, Call::Receive(tcp::Receive { max })),
            Step::ReportUnread { socket, bytes } => self.call(socket, Call::ReportUnread(tcp::ReportUnread { bytes })),
            Step::Shutdown(socket) => self.call(socket, Call::Shutdown(tcp::Shutdown::Write)),
            Step::Set { socket, option } => self.call(socket, Call::SetOption(tcp::SetOption(option))),
            Step::Close(socket) => self.call(socket, Call::Close(tcp::Close)),
            Step::Abort(socket) => self.call(socket, Call::Abort(tcp::Abort)),
            Step::Bind(port) => {
                let bound = stack.bind_udp(SocketAddr::new(frames::STACK.into(), port));
                let answer = format!("{:?}", bound.as_ref().map(|socket| socket.local()));
                self.datagrams.extend(bound);
                answer
            }
            Step::SendDatagram { socket, port, len } => {
                let payload = pktbuf::PktBuf::from_slice(&vec![7; len]).expect("a packet buffer");
                let to = SocketAddr::new(self.remote[0], port);
                format!("{:?}", stack.send_udp(&self.datagrams[socket], payload, Some(to)))
            }
            Step::Group { socket, group, joins: true } => {
                format!("{:?}", stack.join_group(&self.datagrams[socket], group, None))
            }
            Step::Group { socket, group, joins: false } => {
                format!("{:?}", stack.leave_group(&self.datagrams[socket], group, None))
            }
            Step::Route(ref data) => {
                let stated = data.parse().map(|route| stack.state_route(&route, 0));
                format!("{stated:?}")
            }
            Step::Unroute(ref data) => {
                format!("{:?}", data.parse().map(|route| stack.remove_route(&route)))
            }
            Step::Knob { name, ref value } => format!("{:?}", stack.shared().control().set_knob(name, value)),
            Step::Pass(_) | Step::Frame(_) => unreachable!("not a user's"),
        }
    }

    fn call(&self, socket: usize, call: Call<Real>) -> String {
        match self.node.call(&self.sockets[socket], call) {
            Reply::Sent(Ok(sent)) => format!("sent {}", sent.accepted),
            Reply::Sent(Err(error)) => format!("not sent: {error:?}"),
            Reply::Received(Ok(received)) => {
                let mut hasher = DefaultHasher::new();
                let data: Vec<u8> = received.data.iter().flat_map(|data| data.to_vec()).collect();
                data.hash(&mut hasher);
                format!("received {} {:x} {} {}", data.len(), hasher.finish(), received.more, received.end)
            }
            Reply::Received(Err(error)) => format!("not received: {error:?}"),
            Reply::ShutDown(result) => format!("{result:?}"),
            Reply::OptionSet(result) => format!("{result:?}"),
            Reply::Done => "done".to_owned(),
            Reply::Gone => "gone".to_owned(),
            _ => "another answer".to_owned(),
        }
    }
}

/// Frames in order within each connection; frames of none (ARP, discovery, ICMP) sorted by their bytes.
pub fn by_flow(frames: &[Vec<u8>]) -> Vec<&Vec<u8>> {
    let mut sorted: Vec<_> = frames.iter().collect();
    sorted.sort_by_key(|frame| match tcp_of(frame) {
        Some((header, _)) => (Some((header.src_port, header.dst_port)), None),
        None => (None, Some(*frame)),
    });
    sorted
}

/// The frames without the identifications of fragmentable IPv4 packets, and without the header checksums that cover
/// them: identifications are assigned in the order in which packets leave (RFC 6864).
fn unnumbered(frames: &[&Vec<u8>]) -> Vec<Vec<u8>> {
    const LINK: usize = wire::ethernet::HEADER_LEN;
    let without = |frame: &&Vec<u8>| {
        let mut frame = frame.to_vec();
        if frame.get(12..LINK) == Some(&[8, 0]) && frame.len() >= LINK + wire::ipv4::HEADER_LEN {
            frame[LINK + 4..LINK + 6].fill(0);
            frame[LINK + 10..LINK + 12].fill(0);
        }
        frame
    };
    frames.iter().map(without).collect()
}

/// A step in a line.
pub fn name(step: &Step) -> String {
    match step {
        Step::Frame(frame) => format!("Frame({})", line(frame)),
        step => format!("{step:?}"),
    }
}

/// A frame in a line, as far as it is TCP.
pub fn line(frame: &[u8]) -> String {
    match tcp_of(frame) {
        Some((header, data)) => format!(
            "{} > {}: {:?} seq {} ack {} window {} options {:?} text {}",
            header.src_port,
            header.dst_port,
            header.flags,
            header.seq.0,
            header.ack.0,
            header.window,
            header.options,
            data.len(),
        ),
        None => format!("{} bytes, not TCP", frame.len()),
    }
}

/// The difference of two outcomes of `step`, in words.
///
/// When time passes and timers of several connections fire at one instant, their order is not specified: frames are
/// then compared in order within each connection, and without the numbers that follow from the order.
pub fn differ(step: &Step, here: &Outcome, there: &Outcome) -> Option<String> {
    let same = match step {
        Step::Pass(_) => unnumbered(&by_flow(&here.frames)) == unnumbered(&by_flow(&there.frames)),
        _ => here.frames == there.frames,
    };
    if same && here.answer == there.answer {
        return None;
    }
    let data = |outcome: &Outcome| {
        let frames: String = outcome.frames.iter().map(|frame| format!("\n    {}", line(frame))).collect();
        format!("answered {:?} and sent{frames}", outcome.answer)
    };
    Some(format!("({}): {}\nwhere {} {}", name(step), data(here), Architecture::reference(), data(there)))
}
