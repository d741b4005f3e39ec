//! A load of requests and answers: handlers on cores that poll, and a peer of hand-made segments on a CPU of its own. A
//! request contains the working time of its handler.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use dev::mem::{self, MemConfig};
use dev::{Device, QueuePair};
use pktbuf::PktBuf;
use stack::socket::handler::{Conn, ConnectionHandler};
use stack::{Addressing, Architecture, Clock, Driver, InterfaceConfig, Stack, StackConfig};
use sync::{Atomic, Ordering, Platform, Step, ThreadClass};
use tcp::config::ConnectionOptions;
use testbed::frames::{self, Ends, ISS, Segment, tcp_of};
use vsmp::{Costs, Machine, Vsmp};
use wire::tcp::TcpFlags;

pub const CORES: usize = 4;
const PORT: u16 = 80;
/// Bytes of a request, and of its answer.
const SIZE: usize = 8;
/// Virtual nanoseconds during which the peer sends requests.
const SPAN: u64 = 60_000_000;

type Flag = Arc<<Vsmp as Platform>::AtomicBool>;

/// When a connection's next request leaves.
#[derive(Clone, Copy)]
pub enum When {
    /// As soon as the answer has arrived.
    Answered,
    /// After a random time of this mean in nanoseconds, exponentially distributed, whether there is an answer or not.
    Random(u64),
}

/// The parameters of a run.
#[derive(Clone, Copy)]
pub struct Run {
    pub arch: &'static str,
    /// Connections by their home cores.
    pub homes: [usize; CORES],
    /// How long requests take, in nanoseconds, each with the same probability.
    pub service: &'static [u64],
    pub when: When,
    pub ends: Ends,
    /// The seed of the peer's random numbers.
    pub seed: u64,
}

/// The result of a run.
pub struct Measured {
    /// The answers of each connection.
    answers: Vec<usize>,
    /// Nanoseconds from request to answer, in increasing order; of requests without an answer, how long they waited.
    latencies: Vec<u64>,
}

impl Measured {
    /// All answers.
    pub fn total(&self) -> usize {
        self.answers.iter().sum()
    }

    /// Jain's index of the connections' answers: 1 where all have as many.
    pub fn fairness(&self) -> f64 {
        let squares: f64 = self.answers.iter().map(|answers| (*answers as f64).powi(2)).sum();
        (self.total() as f64).powi(2) / (squares * self.answers.len() as f64)
    }

    /// The latency that this part of the answers does not exceed, in nanoseconds.
    pub fn quantile(&self, part: f64) -> u64 {
        self.latencies[((self.latencies.len() - 1) as f64 * part) as usize]
    }
}

/// Works for the time in each request, and answers it.
#[derive(Default)]
struct Works(Vec<u8>);

impl ConnectionHandler<Vsmp> for Works {
    fn data(&mut self, conn: &mut Conn<'_, Vsmp>, data: PktBuf) {
        self.0.extend_from_slice(&data);
        while let Some((request, rest)) = self.0.split_first_chunk::<SIZE>() {
            let end = Vsmp::now() + u64::from_be_bytes(*request);
            self.0 = rest.to_vec();
            while Vsmp::now() < end {
                // A tenth of a microsecond or so.
                Vsmp::work(Step::Batch, 2);
            }
            assert_eq!(conn.send(&[1; SIZE]), Ok(SIZE));
        }
    }
}

/// The peer's end of a connection.
struct Client {
    port: u16,
    /// SND.NXT and RCV.NXT, the former from the ISS.
    sent: u32,
    next: u32,
    /// The times at which unanswered requests were sent.
    asked: VecDeque<u64>,
    answered: usize,
    due: u64,
}

impl Client {
    fn new(port: u16) -> Client {
        Client { port, sent: 1, next: 0, asked: VecDeque::new(), answered: 0, due: u64::MAX }
    }
}

struct Peer {
    far: Vec<QueuePair>,
    run: Run,
    clients: Vec<Client>,
    random: u64,
    latencies: Vec<u64>,
}

impl Peer {
    fn put(&mut self, frame: &[u8]) {
        let buffer = PktBuf::from_slice(frame).expect("a packet buffer");
        assert!(self.far[0].tx.transmit(buffer).is_ok(), "there is room");
        self.far[0].tx.flush();
    }

    fn take(&mut self) -> Vec<PktBuf> {
        let mut frames = Vec::new();
        self.far.iter_mut().for_each(|pair| while pair.rx.receive(&mut frames, 64) > 0 {});
        frames
    }

    /// Teaches the stack the peer's addresses.
    fn introduce(&mut self, drivers: &mut [Driver<Vsmp>]) {
        for known in [frames::arp_request(), frames::neighbour_solicitation()] {
            self.put(&known);
            drivers.iter_mut().for_each(|driver| _ = driver.poll());
        }
        drop(self.take());
    }

    /// As many connections for each core as the run has.
    fn choose_ports(&mut self, stack: &Stack<Vsmp>) {
        let Run { ends, homes, .. } = self.run;
        let local = SocketAddr::new(ends.dst, PORT);
        let mut ports = 2000..;
        for (home, count) in homes.into_iter().enumerate() {
            let here = |port: &u16| stack.flow(local, SocketAddr::new(ends.src, *port)).index(CORES) == home;
            self.clients.extend(ports.by_ref().filter(here).take(count).map(Client::new));
        }
    }

    fn connect(&mut self) {
        for at in 0..self.clients.len() {
            let syn = Segment::syn(self.clients[at].port, PORT).frame_over(self.run.ends);
            self.put(&syn);
            while self.clients[at].next == 0 {
                self.hear();
                Vsmp::yield_now();
            }
        }
    }

    /// Processes arrived segments: acknowledges handshakes, and counts answers.
    fn hear(&mut self) {
        for frame in self.take() {
            let Some((header, data)) = tcp_of(&frame) else { continue };
            let Some(at) = self.clients.iter().position(|client| client.port == header.dst_port) else { continue };
            if header.flags.contains(TcpFlags::SYN) {
                self.clients[at].next = header.seq.0.wrapping_add(1);
                let ack = self.segment(at, b"");
                self.put(&ack);
            } else if header.seq.0 == self.clients[at].next {
                self.count(at, data.len());
            }
        }
    }

    /// Counts this many bytes of answers.
    fn count(&mut self, at: usize, bytes: usize) {
        let client = &mut self.clients[at];
        client.next = client.next.wrapping_add(bytes as u32);
        for _ in 0..bytes / SIZE {
            let asked = client.asked.pop_front().expect("an answer for each request");
            client.answered += 1;
            self.latencies.push(Vsmp::now() - asked);
            if let When::Answered = self.run.when {
                client.due = Vsmp::now();
            }
        }
    }

    fn segment(&self, at: usize, data: &[u8]) -> Vec<u8> {
        let client = &self.clients[at];
        let segment = Segment::ack((client.port, PORT), ISS.wrapping_add(client.sent), client.next);
        let push = if data.is_empty() { TcpFlags::NONE } else { TcpFlags::PSH };
        Segment { data, ..segment }.and(push).frame_over(self.run.ends)
    }

    /// Sends the requests that are due.
    fn ask(&mut self) {
        let now = Vsmp::now();
        for at in 0..self.clients.len() {
            if self.clients[at].due > now {
                continue;
            }
            let choice = (self.random() * self.run.service.len() as f64) as usize;
            let frame = self.segment(at, &self.run.service[choice].to_be_bytes());
            self.put(&frame);
            let pause = self.pause();
            let client = &mut self.clients[at];
            client.sent += SIZE as u32;
            client.asked.push_back(now);
            client.due = now.saturating_add(pause.unwrap_or(u64::MAX));
        }
    }

    /// Until the next request, if that does not wait for the answer.
    fn pause(&mut self) -> Option<u64> {
        let When::Random(mean) = self.run.when else { return None };
        Some((-(1.0 - self.random()).ln() * mean as f64) as u64)
    }

    /// Uniform from 0 to 1, without 1.
    fn random(&mut self) -> f64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Opens the connections, and sends requests until the time is over.
    fn measure(mut self) -> Measured {
        self.connect();
        let end = Vsmp::now() + SPAN;
        for at in 0..self.clients.len() {
            self.clients[at].due = Vsmp::now() + self.pause().unwrap_or(0);
        }
        while Vsmp::now() < end {
            self.ask();
            self.hear();
            Vsmp::yield_now();
        }
        // Requests are answered, if that takes no longer than all the rest.
        while Vsmp::now() < end + SPAN && self.clients.iter().any(|client| !client.asked.is_empty()) {
            self.hear();
            Vsmp::yield_now();
        }
        let waiting = self.clients.iter().flat_map(|client| &client.asked).map(|asked| end + SPAN - asked);
        self.latencies.extend(waiting);
        self.latencies.sort_unstable();
        Measured { answers: self.clients.iter().map(|client| client.answered).collect(), latencies: self.latencies }
    }
}

impl Run {
    /// On a machine with a CPU for each core and one for the peer.
    pub fn measure(self) -> Measured {
        let machine = Machine::new(CORES + 1, Costs::opteron_275());
        machine.run(move || self.measure_here()).0
    }

    fn measure_here(self) -> Measured {
        let (stack, mut drivers, far) = self.build();
        let mut peer = Peer { far, run: self, clients: Vec::new(), random: self.seed, latencies: Vec::new() };
        peer.introduce(&mut drivers);
        drivers.iter_mut().for_each(Driver::rest);
        let any = "[::]:80".parse().expect("an address");
        let make = |_: &_| Box::new(Works::default()) as Box<_>;
        // Nagle's algorithm would leave an answer until the next request acknowledges the last one.
        let options = ConnectionOptions { no_delay: true, ..Default::default() };
        let _listener = stack.listen_with_handlers(any, 64, options, make).expect("the port is free");
        peer.choose_ports(&stack);
        let stop = Flag::default();
        let cores: Vec<_> = (0..).zip(drivers).map(|(core, driver)| poll_until(&stop, core, driver)).collect();
        let result = Arc::new(Mutex::new(None));
        let place = result.clone();
        let asks = Vsmp::spawn("peer", Some(CORES), ThreadClass::Application, move || {
            let measured = peer.measure();
            *place.lock().expect("no other thread has it") = Some(measured);
            stop.store(true, Ordering::Release);
        });
        Vsmp::join(asks).expect("the peer ends well");
        cores.into_iter().for_each(|core| Vsmp::join(core).expect("a core ends well"));
        result.lock().expect("no other thread has it").take().expect("the peer has measured")
    }

    fn build(&self) -> (Stack<Vsmp>, Vec<Driver<Vsmp>>, Vec<QueuePair>) {
        let (near, mut far) = mem::pair::<Vsmp>(MemConfig { queues: CORES, ring_frames: 512, ..MemConfig::default() });
        let arch = Architecture::named(self.arch);
        let config = StackConfig { seed: Some(1), cpus: CORES, clock: Clock::Platform, ..StackConfig::new(arch) };
        let addresses = vec![(frames::STACK.into(), 24), ("fd00::1".parse().expect("an address"), 64)];
        let interface =
            InterfaceConfig { device: Box::new(near), addresses, gateways: vec![], addressing: Addressing::default() };
        let (stack, drivers) = Stack::build(config, vec![interface]).expect("the stack builds");
        (stack, drivers, far.take_queues())
    }
}

/// A core: a thread that polls until it must stop.
fn poll_until(stop: &Flag, core: usize, mut driver: Driver<Vsmp>) -> usize {
    let stop = stop.clone();
    Vsmp::spawn(&format!("core {core}"), Some(core), ThreadClass::Receive, move || {
        while !stop.load(Ordering::Acquire) {
            if driver.poll() == 0 {
                Vsmp::yield_now();
            }
        }
        driver.rest();
    })
}
