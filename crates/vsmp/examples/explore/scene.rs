//! A stack with its receive thread, a listener, and a peer of hand-made segments, over either family.

use std::sync::Arc;
use std::time::Duration;

use dev::{Device, QueuePair};
use observe::Counter;
use pktbuf::PktBuf;
use stack::call::{Call, Reply};
use stack::socket::{ListenerShared, Readiness, TcpSocket};
use stack::{Architecture, Driver, Stack, VirtualClock};
use sync::{Atomic, Ordering, Platform, ThreadClass};
use testbed::frames::{Ends, ISS, Segment, neighbour_solicitation, tcp_of};
use testbed::node::{Node, NodeConfig, send};
use testbed::order_check::{OrderCheck, Seen};
use wire::tcp::{Header, TcpFlags};

use crate::platform::Explored;

/// The port of the listener.
pub const PORT: u16 = 80;
/// Cells of an architecture with one for each processor.
const CELLS: usize = 2;

type Thread = <Explored as Platform>::JoinHandle;

/// See the head of the file.
pub struct Scene {
    pub stack: Stack<Explored>,
    pub listener: Arc<ListenerShared<Explored>>,
    clock: Arc<VirtualClock<Explored>>,
    ends: Ends,
    far: QueuePair,
    batch: Vec<PktBuf>,
    /// The TCP segments that the stack's device has transmitted and received.
    seen: Arc<Seen>,
    receiver: Option<Receiver>,
    /// Data may be sent again.
    pub resends: bool,
    /// Segments may arrive for which there is no connection, and which are therefore not counted.
    pub strays: bool,
}

/// The stack's receive thread.
struct Receiver {
    stop: Arc<<Explored as Platform>::AtomicBool>,
    thread: Thread,
    driver: Arc<std::sync::Mutex<Option<Driver<Explored>>>>,
}

/// The peer's end of a connection, and the stack's socket.
pub struct Connection {
    pub port: u16,
    pub socket: Arc<TcpSocket<Explored>>,
    /// Bytes that the peer has sent, and the stack's first sequence number after its SYN.
    sent: u32,
    pub first: u32,
}

/// Wraps the stack's device, outside the check of its order.
pub type Around = fn(Box<dyn Device>) -> Box<dyn Device>;

impl Scene {
    /// Starts the receive thread of a stack with a listener.
    pub fn start(arch: Architecture, ends: Ends, around: Around) -> Scene {
        let mut seen = None;
        let config = NodeConfig { cpus: CELLS, own_threads: true, ring_frames: 64, ..NodeConfig::new(arch) };
        let mut node = Node::<Explored>::with_device(config, |near| {
            let (checked, observed) = OrderCheck::new(near);
            seen = Some(observed);
            around(Box::new(checked))
        });
        node.put(&testbed::frames::arp_request());
        node.put(&neighbour_solicitation());
        node.settle();
        let listener = node.listen(PORT, 8);
        node.driver.rest();
        let Node { stack, driver, clock, far, .. } = node;
        let seen = seen.expect("the device was wrapped");
        let (batch, receiver) = (Vec::new(), None);
        let mut scene =
            Scene { stack, listener, clock, ends, far, batch, seen, receiver, resends: false, strays: false };
        scene.receive(driver);
        scene
    }

    fn receive(&mut self, mut driver: Driver<Explored>) {
        let stop = Arc::new(<Explored as Platform>::AtomicBool::new(false));
        let place = Arc::new(std::sync::Mutex::new(None));
        let (stopped, back) = (stop.clone(), place.clone());
        let thread = Explored::spawn("receiver", None, ThreadClass::Receive, move || {
            while !stopped.load(Ordering::Acquire) {
                if driver.poll() == 0 {
                    driver.wait(None);
                }
            }
            driver.rest();
            *back.lock().expect("nobody panics with it") = Some(driver);
        });
        self.receiver = Some(Receiver { stop, thread, driver: place });
    }

    /// Ends the receive thread, after its driver has become idle.
    fn stop(&mut self) -> Option<Driver<Explored>> {
        let Receiver { stop, thread, driver } = self.receiver.take()?;
        stop.store(true, Ordering::Release);
        self.stack.shared().links().wake_drivers();
        Explored::join(thread).expect("the receive thread ends well");
        driver.lock().expect("nobody panics with it").take()
    }

    /// Switches the architecture while the stack is idle.
    pub fn switch(&mut self, arch: Architecture) {
        let driver = self.stop().expect("a receive thread");
        self.stack.switch(arch).expect("the stack is at rest");
        self.receive(driver);
    }

    /// Puts frames on the link, which the stack may take as one batch, and wakes it once.
    pub fn put(&mut self, frames: &[Vec<u8>]) {
        for frame in frames {
            let buffer = PktBuf::from_slice(frame).expect("a packet buffer");
            assert!(self.far.tx.transmit(buffer).is_ok(), "the ring to the stack is full");
        }
        self.far.tx.flush();
    }

    /// Sleeps until the stack has sent a matching segment; ignores earlier ones.
    pub fn expect<R>(&mut self, mut like: impl FnMut(&Header, &[u8]) -> Option<R>) -> R {
        loop {
            while !self.batch.is_empty() {
                let frame = self.batch.remove(0);
                if let Some(found) = tcp_of(&frame).and_then(|(header, data)| like(&header, data)) {
                    return found;
                }
            }
            if self.far.rx.receive(&mut self.batch, 64) == 0 {
                self.far.rx.wait(None);
            }
        }
    }

    /// Sends a SYN from `port`; the first sequence number after the SYN-ACK's, or `None` for a reset.
    pub fn send_syn(&mut self, port: u16) -> Option<u32> {
        self.put(&[Segment::syn(port, PORT).frame_over(self.ends)]);
        self.expect(|header, _| {
            let reset = header.flags.contains(TcpFlags::RST);
            (header.dst_port == port).then(|| (!reset).then(|| header.seq.0.wrapping_add(1)))
        })
    }

    /// A connection that the stack's user has accepted.
    pub fn open(&mut self, port: u16) -> Connection {
        let first = self.send_syn(port).expect("the listener is open");
        self.put(&[Segment::ack((port, PORT), ISS.wrapping_add(1), first).frame_over(self.ends)]);
        let socket = loop {
            if let Some(child) = self.listener.accept() {
                break child;
            }
            self.listener.ready.wait(Readiness::ACCEPTABLE, None);
        };
        self.stack.call(&socket.target(), Call::SetOption(tcp::SetOption(tcp::SocketOption::NoDelay(true))));
        Connection { port, socket, sent: 0, first }
    }

    /// The peer's next data, with an acknowledgement of this many bytes.
    pub fn data(&self, connection: &mut Connection, acknowledged: u32, data: &[u8]) -> Vec<u8> {
        let seq = ISS.wrapping_add(1).wrapping_add(connection.sent);
        connection.sent += data.len() as u32;
        let ack = connection.first.wrapping_add(acknowledged);
        let flags = if data.is_empty() { TcpFlags::NONE } else { TcpFlags::PSH };
        Segment { data, ..Segment::ack((connection.port, PORT), seq, ack) }.and(flags).frame_over(self.ends)
    }

    /// Sleeps until the stack has acknowledged all data of the peer; calls `look` with each segment up to that one.
    pub fn until_acknowledged(&mut self, connection: &Connection, mut look: impl FnMut(&Header, &[u8])) {
        let end = ISS.wrapping_add(1).wrapping_add(connection.sent);
        let port = connection.port;
        self.expect(|header, data| {
            look(header, data);
            (header.dst_port == port && header.ack.0 == end).then_some(())
        });
    }

    /// Advances the clock and wakes the drivers, so that they run the timers that are due.
    pub fn clock(&self) -> impl Fn(Duration) + Send + 'static {
        let (clock, stack) = (self.clock.clone(), self.stack.clone());
        move |span| {
            clock.advance(span);
            stack.shared().links().wake_drivers();
        }
    }

    /// The run is over: all threads end, the counters are those of the device (G6), and all data left in order (G7).
    pub fn end(mut self) {
        self.stack.unlisten(&self.listener);
        // Frames on the link are received first.
        let mut driver = self.stop().expect("a receive thread");
        while driver.poll() > 0 || !self.stack.is_quiescent() {
            Explored::yield_now();
        }
        let mut counters = self.stack.stats().counters;
        counters.absorb(driver.counters());
        let seen = |count: &std::sync::atomic::AtomicU64| count.load(std::sync::atomic::Ordering::Relaxed);
        if !self.resends {
            assert_eq!(seen(&self.seen.displaced), 0, "a segment overtook another (G7)");
        }
        assert_eq!(
            counters.get(Counter::SegmentsOut),
            seen(&self.seen.sent),
            "segments counted, and seen to leave (G6)"
        );
        let (counted, came) = (counters.get(Counter::SegmentsIn), seen(&self.seen.received));
        let adds_up = counted == came || self.strays && counted < came;
        assert!(adds_up, "{counted} segments counted that came, {came} seen (G6)");
        driver.rest();
    }
}

/// Starts a thread of the application that runs `body`.
pub fn caller(body: impl FnOnce() + Send + 'static) -> Thread {
    Explored::spawn("caller", None, ThreadClass::Application, body)
}

/// Waits for a thread.
pub fn join(thread: Thread) {
    Explored::join(thread).expect("the thread ends well");
}

/// Writes all of `data`.
pub fn write(stack: &Stack<Explored>, socket: &TcpSocket<Explored>, data: &[u8]) {
    match stack.call(&socket.target(), send(data)) {
        Reply::Sent(Ok(sent)) => assert_eq!(sent.accepted, data.len(), "it has room"),
        _ => panic!("the connection takes no data"),
    }
}

/// Reads `len` bytes.
pub fn read(stack: &Stack<Explored>, socket: &TcpSocket<Explored>, len: usize) -> Vec<u8> {
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
