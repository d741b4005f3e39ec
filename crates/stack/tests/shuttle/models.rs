//! The models: scenarios for a stack in one execution. Each starts the threads of a running stack, and ends with all
//! joined.

use std::sync::Arc;

use dev::QueuePair;
use observe::Counter;
use pktbuf::PktBuf;
use stack::call::{Call, Reply};
use stack::socket::handler::{Conn, ConnectionHandler, HandlerMessage, HandlerRef};
use stack::socket::{ListenerShared, Readiness, TcpSocket};
use stack::{Architecture, Stack};
use sync::{Atomic, Condvar, Lock, LockClass, LockKind, Ordering, Platform, ThreadClass};
use wire::tcp::{Header, TcpFlags};

use testbed::frames::{ISS, PEER, STACK, Segment, arp_reply, is_arp, tcp_of};
use testbed::node::{Node, NodeConfig, send};

pub(super) const PORT: u16 = 80;
/// How many times each thread of a crowd opens a socket.
const CALLS: usize = 3;

/// A stack with its receive thread, and the peer's end of its link.
pub(super) struct Running<P: Platform> {
    pub(super) stack: Stack<P>,
    pub(super) peer: Peer,
    stop: Arc<P::AtomicBool>,
    receiver: P::JoinHandle,
}

pub(super) struct Peer {
    far: QueuePair,
    batch: Vec<PktBuf>,
}

impl Peer {
    pub(super) fn put(&mut self, segment: Segment<'_>) {
        self.put_all(&[segment.frame()]);
    }

    /// Puts frames on the link, which the stack may take as one batch, and wakes it once.
    pub(super) fn put_all(&mut self, frames: &[Vec<u8>]) {
        for frame in frames {
            let buffer = PktBuf::from_slice(frame).expect("a packet buffer");
            assert!(self.far.tx.transmit(buffer).is_ok(), "the ring to the stack is full");
        }
        self.far.tx.flush();
    }

    /// Sleeps until the stack has sent a matching segment; ignores earlier ones.
    pub(super) fn expect<R>(&mut self, like: impl Fn(&Header, &[u8]) -> Option<R>) -> R {
        self.expect_frame(|frame| tcp_of(frame).and_then(|(header, data)| like(&header, data)))
    }

    /// Sleeps until the stack has sent a matching frame; ignores earlier ones.
    fn expect_frame<R>(&mut self, like: impl Fn(&[u8]) -> Option<R>) -> R {
        loop {
            while !self.batch.is_empty() {
                let frame = self.batch.remove(0);
                if let Some(found) = like(&frame) {
                    return found;
                }
            }
            if self.far.rx.receive(&mut self.batch, 64) == 0 {
                self.far.rx.wait(None);
            }
        }
    }

    /// Sends a SYN from `port`; the sequence number of the SYN-ACK, or `None` for a reset.
    pub(super) fn connect(&mut self, port: u16) -> Option<u32> {
        self.put(Segment::syn(port, PORT));
        self.expect(|header, _| {
            let reset = header.flags.contains(TcpFlags::RST);
            (header.dst_port == port).then(|| (!reset).then(|| header.seq.0.wrapping_add(1)))
        })
    }
}

/// The peer's data at the beginning of its stream.
pub(super) fn segment(port: u16, ack: u32, data: &[u8]) -> Segment<'_> {
    let seq = ISS.wrapping_add(1);
    Segment { data, ..Segment::ack((port, PORT), seq, ack) }.and(TcpFlags::PSH)
}

impl<P: Platform> Running<P> {
    fn start(arch: Architecture) -> (Running<P>, Arc<ListenerShared<P>>) {
        Self::start_on(arch, 1)
    }

    /// With `cpus` cells in architectures with one for each processor.
    pub(super) fn start_on(arch: Architecture, cpus: usize) -> (Running<P>, Arc<ListenerShared<P>>) {
        let node = Node::<P>::with_known_peer(Self::config(arch, cpus));
        let listener = node.listen(PORT, 4);
        (Self::start_node(node), listener)
    }

    fn config(arch: Architecture, cpus: usize) -> NodeConfig {
        NodeConfig { cpus, own_threads: true, ring_frames: 128, ..NodeConfig::new(arch) }
    }

    fn start_node(mut node: Node<P>) -> Running<P> {
        node.driver.rest();
        let Node { stack, mut driver, far, .. } = node;
        let stop = Arc::new(P::AtomicBool::new(false));
        let stopped = stop.clone();
        let receiver = P::spawn("receiver", None, ThreadClass::Receive, move || {
            while !stopped.load(Ordering::Acquire) {
                if driver.poll() == 0 {
                    driver.wait(None);
                }
            }
        });
        Running { stack, peer: Peer { far, batch: Vec::new() }, stop, receiver }
    }

    pub(super) fn end(self) {
        self.stop.store(true, Ordering::Release);
        // The wakers belong to the stack; a meaningless frame ends the sleep as well.
        let mut peer = self.peer;
        peer.put(Segment { flags: TcpFlags::RST, ..Segment::syn(9, 9) });
        P::join(self.receiver).expect("the receive thread ends well");
    }
}

pub(super) fn accept<P: Platform>(listener: &ListenerShared<P>) -> Arc<TcpSocket<P>> {
    loop {
        if let Some(child) = listener.accept() {
            return child;
        }
        listener.ready.wait(Readiness::ACCEPTABLE, None);
    }
}

fn read<P: Platform>(stack: &Stack<P>, socket: &TcpSocket<P>, len: usize) -> Vec<u8> {
    let mut data = Vec::new();
    while data.len() < len {
        match stack.call(&socket.target(), Call::Receive(tcp::Receive { max: 100 })) {
            Reply::Received(Ok(got)) => data.extend(got.data.iter().flat_map(|data| data.to_vec())),
            Reply::Received(Err(tcp::Error::WouldBlock)) => {
                socket.ready.wait(Readiness::READABLE, None);
            }
            _ => panic!("the connection has failed"),
        }
    }
    data
}

fn write<P: Platform>(stack: &Stack<P>, socket: &TcpSocket<P>, data: &[u8]) {
    match stack.call(&socket.target(), send(data)) {
        Reply::Sent(Ok(sent)) => assert_eq!(sent.accepted, data.len()),
        _ => panic!("the connection takes no text"),
    }
}

/// Handshake, a request, an answer, close; a caller sleeps for each.
pub fn connection<P: Platform>(arch: Architecture) {
    let (mut running, listener) = Running::<P>::start(arch);
    let stack = running.stack.clone();
    let caller = P::spawn("caller", None, ThreadClass::Application, move || {
        let socket = accept(&listener);
        assert_eq!(read(&stack, &socket, 8), b"question");
        write(&stack, &socket, b"answer");
        stack.call(&socket.target(), Call::Close(tcp::Close));
        stack.unlisten(&listener);
    });
    let next = running.peer.connect(2000).expect("the listener is open");
    running.peer.put(segment(2000, next, b"question"));
    running.peer.expect(|_, data| (data == b"answer").then_some(()));
    running.peer.expect(|header, _| header.flags.contains(TcpFlags::FIN).then_some(()));
    P::join(caller).expect("the caller ends well");
    running.end();
}

/// A handler that answers a message with data for its peer.
struct Answers<P: Platform>(Arc<Lock<Option<HandlerRef<P>>, P>>, Arc<Condvar<P>>);

impl<P: Platform> ConnectionHandler<P> for Answers<P> {
    fn open(&mut self, conn: &mut Conn<'_, P>) {
        *self.0.lock() = Some(conn.name());
        self.1.notify_one();
    }

    fn data(&mut self, _: &mut Conn<'_, P>, _: PktBuf) {}

    fn message(&mut self, conn: &mut Conn<'_, P>, _: HandlerMessage) {
        assert_eq!(conn.send(b"answer"), Ok(6));
    }
}

/// A thread posts a message to a connection's handler, while the receive thread sleeps or is about to: the handler runs.
pub fn message_for_a_handler<P: Platform>(arch: Architecture) {
    let (mut running, listener) = Running::<P>::start(arch);
    running.stack.unlisten(&listener);
    let name = Arc::new(Lock::new(LockKind::Blocking, LockClass::Control, None));
    let opened = Arc::new(Condvar::new());
    let (kept, told) = (name.clone(), opened.clone());
    let make = move |_: &_| Box::new(Answers(kept.clone(), told.clone())) as Box<_>;
    let address = std::net::SocketAddr::new(STACK.into(), PORT);
    let listener = running.stack.listen_with_handlers(address, 4, Default::default(), make).expect("the port is free");
    let caller = P::spawn("caller", None, ThreadClass::Application, move || {
        let name = opened.wait_while(name.lock(), |name| name.is_none()).take().expect("the handler is open");
        assert!(name.post(Box::new(())).is_ok());
    });
    let next = running.peer.connect(2000).expect("the listener is open");
    running.peer.put(segment(2000, next, b""));
    running.peer.expect(|_, data| (data == b"answer").then_some(()));
    P::join(caller).expect("the caller ends well");
    running.stack.unlisten(&listener);
    running.end();
}

/// Three segments of a connection arrive as one batch, over a link that neither loses nor reorders: they reach it in that
/// order (O1), and so does their data its user.
pub fn arrival_order<P: Platform>(arch: Architecture) {
    let (mut running, listener) = Running::<P>::start_on(arch, 3);
    let next = running.peer.connect(2000).expect("the listener is open");
    running.peer.put(segment(2000, next, b""));
    let socket = accept(&listener);
    let frames = [b"one,", b"two,", b"last"].into_iter().enumerate().map(|(at, data)| {
        let seq = ISS.wrapping_add(1 + 4 * at as u32);
        Segment { seq, ..segment(2000, next, data) }.frame()
    });
    running.peer.put_all(&frames.collect::<Vec<_>>());
    assert_eq!(read(&running.stack, &socket, 12), b"one,two,last");
    let displaced = running.stack.stats().counters.get(Counter::OutOfOrderAtEntry);
    assert_eq!(displaced, 0, "segments reached their connection out of order (O1)");
    running.stack.call(&socket.target(), Call::Abort(tcp::Abort));
    running.stack.unlisten(&listener);
    running.end();
}

/// A stack is switched while a peer sends, a receive thread polls and a caller reads and writes: the caller's calls
/// succeed, and the stream is whole, in both directions.
pub fn switched<P: Platform>(from: Architecture, to: Architecture) {
    let (mut running, listener) = Running::<P>::start(from);
    let next = running.peer.connect(2000).expect("the listener is open");
    running.peer.put(segment(2000, next, b"question"));
    let socket = accept(&listener);
    let stack = running.stack.clone();
    let caller = P::spawn("caller", None, ThreadClass::Application, move || {
        assert_eq!(read(&stack, &socket, 8), b"question");
        write(&stack, &socket, b"answer");
        stack.call(&socket.target(), Call::Close(tcp::Close));
    });
    running.stack.set_architecture(to).expect("it can be switched");
    assert_eq!(running.stack.architecture(), to);
    running.peer.expect(|_, data| (data == b"answer").then_some(()));
    running.peer.expect(|header, _| header.flags.contains(TcpFlags::FIN).then_some(()));
    P::join(caller).expect("the caller ends well");
    running.stack.unlisten(&listener);
    running.end();
}

/// A listener closes during a peer's handshake: the peer is reset, in either order.
pub fn listener_closes<P: Platform>(arch: Architecture) {
    let (mut running, listener) = Running::<P>::start(arch);
    let (stack, closing) = (running.stack.clone(), listener.clone());
    let caller = P::spawn("caller", None, ThreadClass::Application, move || stack.unlisten(&closing));
    // Another caller at the same time, which may find the cell in use.
    let stack = running.stack.clone();
    let other = P::spawn("other", None, ThreadClass::Application, move || {
        let address = std::net::SocketAddr::new(STACK.into(), 53);
        drop(stack.bind_udp(address).expect("the port is free"));
    });
    if let Some(next) = running.peer.connect(2000) {
        running.peer.put(segment(2000, next, b""));
        running.peer.expect(|header, _| header.flags.contains(TcpFlags::RST).then_some(()));
    }
    P::join(caller).expect("the caller ends well");
    P::join(other).expect("the other caller ends well");
    assert_eq!(running.peer.connect(2001), None, "after unlisten() no cell answers a SYN");
    assert_eq!(listener.occupancy(), (0, 0));
    assert!(listener.accept().is_none());
    running.end();
}

/// Only concurrent callers: each opens and closes datagram sockets. Exclusion, hand-over and replies are exercised all
/// the time, so that a step that is not atomic shows soon.
pub fn crowd<P: Platform>(arch: Architecture) {
    let (running, listener) = Running::<P>::start(arch);
    let callers = [53, 54].map(|port| {
        let stack = running.stack.clone();
        P::spawn("caller", None, ThreadClass::Application, move || {
            for _ in 0..CALLS {
                let address = std::net::SocketAddr::new(STACK.into(), port);
                let socket = stack.bind_udp(address).expect("the port is free");
                stack.unbind_udp(&socket);
            }
        })
    });
    callers.into_iter().for_each(|caller| P::join(caller).expect("the caller ends well"));
    running.stack.unlisten(&listener);
    running.end();
}

/// A thread sends datagrams to a host, which answers the request for its link address meanwhile: they leave in the order
/// of the calls (G7), although some wait for the answer and the last one may find it there.
pub fn datagrams_before_an_answer<P: Platform>(arch: Architecture) {
    const SENT: u8 = 4;
    let mut running = Running::start_node(Node::<P>::new(Running::<P>::config(arch, 1)));
    let socket = running.stack.bind_udp((STACK, 53).into()).expect("the port is free");
    let (stack, sends) = (running.stack.clone(), socket.clone());
    let caller = P::spawn("caller", None, ThreadClass::Application, move || {
        for number in 0..SENT {
            let payload = PktBuf::from_slice(&[number]).expect("a packet buffer");
            stack.send_udp(&sends, payload, Some((PEER, 53).into())).expect("it is taken");
        }
    });
    let answer = running.peer.expect_frame(arp_reply);
    running.peer.put_all(&[answer]);
    for number in 0..SENT {
        let next = running.peer.expect_frame(|frame| (!is_arp(frame)).then(|| frame.last().copied()));
        assert_eq!(next, Some(number), "a datagram has overtaken another");
    }
    P::join(caller).expect("the caller ends well");
    running.stack.unbind_udp(&socket);
    running.end();
}

/// The only user of a connection reads, finds nothing and sleeps, while data arrives: it is woken for the data.
pub fn data_while_reading<P: Platform>(arch: Architecture) {
    let (mut running, listener) = Running::<P>::start(arch);
    let first = running.peer.connect(2000).expect("the listener is open");
    running.peer.put(segment(2000, first, b""));
    let socket = accept(&listener);
    let (stack, reads) = (running.stack.clone(), socket.clone());
    let caller = P::spawn("caller", None, ThreadClass::Application, move || {
        assert_eq!(read(&stack, &reads, 4), b"cccc");
    });
    running.peer.put(segment(2000, first, b"cccc"));
    P::join(caller).expect("the caller ends well");
    running.stack.call(&socket.target(), Call::Abort(tcp::Abort));
    running.stack.unlisten(&listener);
    running.end();
}

/// Two segments of a connection arrive one after the other, while its user makes calls: they reach it in their order (O1), although
/// the first may have to wait for the user's call, and the second finds the connection free.
pub fn arrivals_beside_calls<P: Platform>(arch: Architecture) {
    let (mut running, listener) = Running::<P>::start(arch);
    let next = running.peer.connect(2000).expect("the listener is open");
    running.peer.put(segment(2000, next, b""));
    let socket = accept(&listener);
    let (stack, target) = (running.stack.clone(), socket.target());
    let caller = P::spawn("caller", None, ThreadClass::Application, move || {
        for _ in 0..CALLS {
            stack.call(&target, Call::SetOption(tcp::SetOption(tcp::SocketOption::NoDelay(true))));
        }
    });
    running.peer.put(segment(2000, next, b"one,"));
    running.peer.put(Segment { seq: ISS.wrapping_add(5), ..segment(2000, next, b"last") });
    P::join(caller).expect("the caller ends well");
    assert_eq!(read(&running.stack, &socket, 8), b"one,last");
    let displaced = running.stack.stats().counters.get(Counter::OutOfOrderAtEntry);
    assert_eq!(displaced, 0, "segments reached their connection out of order (O1)");
    running.stack.call(&socket.target(), Call::Abort(tcp::Abort));
    running.stack.unlisten(&listener);
    running.end();
}

/// Two callers write and one of them reads, while data arrives: the wire has the order of the sequence numbers (G7).
pub fn two_writers<P: Platform>(arch: Architecture) {
    let (mut running, listener) = Running::<P>::start(arch);
    let first = running.peer.connect(2000).expect("the listener is open");
    running.peer.put(segment(2000, first, b""));
    let socket = accept(&listener);
    let no_delay = tcp::SetOption(tcp::SocketOption::NoDelay(true));
    running.stack.call(&socket.target(), Call::SetOption(no_delay));
    let callers = [b"aaaa", b"bbbb"].map(|data| {
        let (stack, socket) = (running.stack.clone(), socket.clone());
        P::spawn("writer", None, ThreadClass::Application, move || {
            write(&stack, &socket, data);
            if data == b"aaaa" {
                assert_eq!(read(&stack, &socket, 4), b"cccc");
            }
        })
    });
    running.peer.put(segment(2000, first, b"cccc"));
    let mut next = first;
    while next != first.wrapping_add(8) {
        let (seq, len) = running.peer.expect(|header, data| (!data.is_empty()).then_some((header.seq.0, data.len())));
        assert_eq!(seq, next, "a segment overtook another");
        next = next.wrapping_add(len as u32);
    }
    callers.into_iter().for_each(|caller| P::join(caller).expect("the caller ends well"));
    running.stack.call(&socket.target(), Call::Abort(tcp::Abort));
    running.stack.unlisten(&listener);
    assert_eq!(running.stack.stats().connections, 0);
    running.end();
}
