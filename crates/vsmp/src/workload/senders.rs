//! The workload of Willmann, Rixner and Cox (2006): a server with several cards sends as much as it can on n connections,
//! spread evenly over the cards, to clients that acknowledge and discard it.
//!
//! A driver thread for each card, woken by its interrupts; as many application threads as CPUs, each with a share of the
//! connections and a set of events over them, which send pages until there is no room, or until their turn is over. Each of
//! these threads has connections at every card (section 4.2 of the paper), and in every cell.
//! Under an architecture for one thread (`up`) one thread does all of this. The paper's own UP is
//! [`Senders::uniprocessor`].
//!
//! *Buffers.* 256 KB for each connection, as in the paper, but no more for all of them together than the machine's
//! [`Preset::send_memory`]. With larger ones 16384 connections take many seconds to fill and to drain.
//!
//! *Steady state* is detected, not assumed: windows of time pass until the rates of some of them in a row differ
//! little, the rates of more of them have no slope, and as much was appended as was acknowledged. The windows after
//! that are measured.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dev::peer::{PeerConfig, PeerMonitor};
use pktbuf::Chunk;
use stack::call::{Call, Reply};
use stack::socket::{PollEvent, PollSet, Readiness, TcpSocket};
use stack::{Addressing, Architecture, Driver, DriverLayout, InterfaceConfig, Stack, StackConfig};
use sync::{Atomic, LockKind, Ordering, Platform, Step, ThreadClass};
use tcp::config::{BufferSizes, ConnectionOptions, SendAccounting};

use super::measured::Measured;
use super::{Turns, nap};
use crate::capture::WireCapture;
use crate::card::Card;
use crate::memory::from_system;
use crate::preset::{Kernel, Preset};
use crate::{Vsmp, lock_profile, machine};

type Socket = Arc<TcpSocket<Vsmp>>;
type Flag = <Vsmp as Platform>::AtomicBool;

const PORT: u16 = 5001;
/// Bytes of one call, as a page of `sendfile`.
const PAGE: usize = 4096;
/// The largest send buffer of a connection, in bytes (section 4.2 of the paper).
const LARGEST: usize = 256 << 10;
/// Events that an application takes at once.
const MOST_EVENTS: usize = 16;
/// Pages that a connection sends before another one has its turn.
const TURN: usize = 16;
/// Connections that are being opened at a time.
const OPENING: usize = 64;
/// The network's queues make round trips of some hundred milliseconds; nothing is lost.
const LEAST_RTO: Duration = Duration::from_secs(3);

/// Number of consecutive windows that must be alike, and the maximum number of windows to wait for that.
const ALIKE: usize = 4;
const MOST_WINDOWS: usize = 40;
/// Windows that are measured.
const MEASURED: usize = 4;
/// Maximum difference of windows that are alike, as a part of their mean.
const TOLERANCE: f64 = 0.08;
/// Number of windows whose rates must have no slope, and the change over all of them that counts as one, as a part of
/// their mean.
const SLOPED: usize = 8;
const DRIFT: f64 = 0.05;
/// Student's t for 95 % with `SLOPED` - 2 degrees of freedom.
const SIGNIFICANT: f64 = 2.447;

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Senders {
    /// The process architecture.
    pub arch: Architecture,
    /// CPUs of the machine, and threads of the application.
    pub cpus: usize,
    /// Connections.
    pub connections: usize,
    /// The machine.
    pub preset: Preset,
    /// The kernel with the habits.
    pub kernel: Kernel,
    /// The seed of the flows and of the clients' delays.
    pub seed: u64,
    /// Whether the addresses are IPv6.
    pub ipv6: bool,
    /// The kind of locks, if not the kernel's.
    pub lock_kind: Option<LockKind>,
}

impl Senders {
    /// The papers' UP: one null lock, on one CPU, whose holder keeps the CPU (spl); threads as on several CPUs.
    pub fn uniprocessor(self) -> Senders {
        Senders { arch: uniprocessor(), cpus: 1, lock_kind: Some(LockKind::Null), ..self }
    }

    /// Runs the workload. Must be called by the first thread of a machine with as many CPUs.
    ///
    /// # Panics
    /// The stack cannot be built, connections do not open, or a thread of the run panics.
    pub fn run(&self) -> Measured {
        self.run_and_record(Duration::ZERO)
    }

    /// As [`Senders::run`], and records the first part of the measured time, of this length.
    ///
    /// # Panics
    /// As [`Senders::run`].
    pub fn run_and_record(&self, stretch: Duration) -> Measured {
        let cards: Vec<Card> = (0..self.preset.cards).map(|n| self.card(n)).collect();
        let clients: Vec<PeerMonitor> = cards.iter().map(Card::client).collect();
        let totals: Vec<_> = cards.iter().map(Card::totals).collect();
        let capture = (stretch > Duration::ZERO).then(|| from_system(WireCapture::new));
        if let Some(capture) = &capture {
            cards.iter().for_each(|card| card.capture(capture));
        }
        let (stack, drivers) = self.stack(cards);
        let senders = SenderThreads::default();
        let mut threads = senders.start(drivers, self.alone());
        let sockets = self.open(&stack);
        let mut placement = vec![0; self.cpus];
        sockets.iter().for_each(|socket| placement[socket.target().index(self.cpus)] += 1);
        let apps = self.applications(&stack, sockets, &senders);
        let sets: Vec<_> = apps.iter().map(|app| app.set.clone()).collect();
        threads.extend(senders.start_applications(apps, self.alone()));
        let bytes = || clients.iter().map(|client| client.totals().bytes_in).sum();
        let mut meter = Meter { window: self.window(), bytes, sent: &senders.sent, windows: Vec::new() };
        let before = Vsmp::now();
        let steady = meter.settle();
        let warm_up = Duration::from_nanos(Vsmp::now() - before);
        let (mut measured, at) = meter.measure(stretch, capture.as_ref());
        senders.stop.store(true, Ordering::Release);
        sets.iter().for_each(|set| set.wake());
        stack.shared().links().wake_drivers();
        for thread in threads {
            if let Err(panic) = Vsmp::join(thread) {
                std::panic::resume_unwind(panic);
            }
        }
        sets.iter().for_each(|set| set.close());
        (measured.warm_up, measured.steady, measured.time) = (warm_up, steady, at);
        measured.placement = placement;
        measured.cards = totals.iter().map(|totals| totals()).collect();
        measured.out_of_order = clients.iter().map(|client| client.totals().out_of_order).sum();
        measured
    }

    /// One thread does everything.
    fn alone(&self) -> bool {
        self.arch.properties().single_thread
    }

    /// Threads of the application: connection n belongs to thread n modulo this.
    fn threads(&self) -> usize {
        if self.alone() { 1 } else { self.cpus }
    }

    /// Whether queues and CPUs have equal shares of the connections.
    fn spreads_evenly(&self) -> bool {
        self.kernel == Kernel::OfThePaper && self.preset.habits.even_spread
    }

    /// Long enough for a round trip through the queues of all connections.
    fn window(&self) -> Duration {
        Duration::from_millis(10).max(Duration::from_micros(10) * self.connections as u32)
    }

    /// The send buffer of a connection, in bytes.
    fn buffer(&self) -> usize {
        (self.preset.send_memory / self.connections.max(1)).clamp(2 * PAGE, LARGEST)
    }

    /// The addresses of the stack and of the client at a card.
    fn addresses(&self, card: usize) -> [IpAddr; 2] {
        let address = |last: u16| -> IpAddr {
            if self.ipv6 {
                [0xfd09, card as u16, 0, 0, 0, 0, 0, last].into()
            } else {
                [10, 9, card as u8, last as u8].into()
            }
        };
        [address(1), address(2)]
    }

    fn card(&self, number: usize) -> Card {
        let mut client = PeerConfig::new(self.addresses(number)[1]);
        client.window = (self.buffer() as u32 / 2).min(65_535);
        client.timestamps = false;
        Card::new(&format!("card{number}"), self.preset.card.clone(), client)
    }

    fn stack(&self, cards: Vec<Card>) -> (Stack<Vsmp>, Vec<Driver<Vsmp>>) {
        let mut config = StackConfig::<Vsmp>::new(self.arch);
        (config.cpus, config.seed) = (self.cpus, Some(self.seed));
        // As in the papers, whichever thread opens the connections.
        config.homing = false;
        config.drivers = if self.alone() { DriverLayout::PerIndex } else { DriverLayout::PerQueue };
        if self.kernel == Kernel::OfThePaper {
            let habits = &self.preset.habits;
            config.lock_kind = habits.lock_kind;
            // A single thread wakes no other, so small batches have no benefit.
            config.receive_batch = if self.alone() { config.receive_batch } else { habits.receive_batch };
            config.runs = false;
            config.tcp.send_accounting = SendAccounting::Bytes;
            config.tcp.send_low_water = habits.low_water;
            config.tcp.send_whole = habits.whole_pages;
        }
        config.lock_kind = self.lock_kind.unwrap_or(config.lock_kind);
        let size = self.buffer() as u32;
        config.tcp.send_buffer = BufferSizes { min: size, initial: size, max: size };
        (config.tcp.rto.min_rto, config.tcp.rto.initial_rto) = (LEAST_RTO, LEAST_RTO);
        let interface = |(number, card): (usize, Card)| {
            let addresses = vec![(self.addresses(number)[0], if self.ipv6 { 64 } else { 24 })];
            let addressing = Addressing::default();
            InterfaceConfig { device: Box::new(card), addresses, gateways: vec![], addressing }
        };
        Stack::build(config, cards.into_iter().enumerate().map(interface).collect()).expect("the stack builds")
    }

    /// Opens the connections, a few at a time: rings are short.
    fn open(&self, stack: &Stack<Vsmp>) -> Vec<Socket> {
        let options = ConnectionOptions { no_delay: true, ..Default::default() };
        let mut ports = EvenPorts::new(self);
        let mut connect = |n: usize| {
            let card = card_of(n, self.threads(), self.preset.cards);
            let [local, remote] = self.addresses(card);
            let remote = SocketAddr::new(remote, PORT);
            let local = self.spreads_evenly().then(|| ports.next(stack, n, card, local, remote)).flatten();
            stack.connect(local, remote, &options).expect("it opens")
        };
        let mut sockets: Vec<Socket> = Vec::new();
        while sockets.len() < self.connections {
            let first = sockets.len();
            sockets.extend((first..self.connections.min(first + OPENING)).map(&mut connect));
            let open = |socket: &Socket| socket.ready.get().intersects(Readiness::CONNECTED);
            for turn in 0.. {
                if sockets[first..].iter().all(open) {
                    break;
                }
                assert!(turn < 100_000, "connections {first} and more do not open");
                nap::<Vsmp>(Duration::from_micros(200));
            }
        }
        sockets
    }

    fn applications(&self, stack: &Stack<Vsmp>, sockets: Vec<Socket>, senders: &SenderThreads) -> Vec<Application> {
        let threads = self.threads();
        let payload: Arc<[u8]> = vec![7; PAGE].into();
        let mut shares = vec![Vec::new(); threads];
        for (n, socket) in sockets.into_iter().enumerate() {
            shares[n % threads].push(socket);
        }
        let application = |sockets: Vec<Socket>| {
            let set = PollSet::new(false).expect("a set without a descriptor");
            for (token, socket) in sockets.iter().enumerate() {
                socket.ready.register(socket, &set, token);
            }
            let (stop, sent) = (senders.stop.clone(), senders.sent.clone());
            let turns = Turns::default();
            Application { stack: stack.clone(), set, sockets, turns, payload: payload.clone(), stop, sent }
        };
        shares.into_iter().map(application).collect()
    }
}

/// The card of connection `n`. Threads and cards take turns by the same number, so the pairs of a thread and a card
/// repeat before all of them have come if the two counts have a common divisor. Each time they would repeat, the cards
/// move on by one.
fn card_of(n: usize, threads: usize, cards: usize) -> usize {
    let divides = |by: &usize| threads.is_multiple_of(*by) && cards.is_multiple_of(*by);
    let common = (1..=cards).rev().find(divides).unwrap_or(1);
    let pairs = threads / common * cards;
    (n + n / pairs % common) % cards
}

/// The place of connection `n`, among as many as a multiple of the number of threads. After each round of places the
/// next one begins at another thread, so that no thread's connections are all in one cell: a hash of the connection, as
/// in the paper's kernels, does not know the thread.
fn place_of(n: usize, places: usize) -> usize {
    (n + n / places) % places
}

/// Local ports by which connections spread evenly over the queues of a card, and over threads and cells of as many as
/// there are CPUs: places of both together ([`place_of`]).
struct EvenPorts {
    /// Places: a multiple of the number of queues, and of the number of CPUs.
    places: usize,
    /// The first port, and by card and place the one to look from.
    first: u16,
    from: HashMap<(usize, usize), u16>,
}

impl EvenPorts {
    fn new(senders: &Senders) -> EvenPorts {
        let (cpus, queues) = (senders.cpus, senders.preset.card.queues);
        let places = (1..=queues).map(|n| n * cpus).find(|places| places % queues == 0).unwrap_or(cpus);
        // Other seeds have other flows.
        let first = FIRST_PORT + (senders.seed.wrapping_mul(0x9e37_79b9) % 16_384) as u16;
        EvenPorts { places, first, from: HashMap::new() }
    }

    /// The end of connection `n` at a card. `None`: all ports of its place are taken, and any other will do.
    fn next(
        &mut self,
        stack: &Stack<Vsmp>,
        n: usize,
        card: usize,
        local: IpAddr,
        remote: SocketAddr,
    ) -> Option<SocketAddr> {
        let place = place_of(n, self.places);
        let from = self.from.entry((card, place)).or_insert(self.first);
        let mut ends = (*from..=u16::MAX).map(|port| SocketAddr::new(local, port));
        let end = ends.find(|end| stack.flow(*end, remote).index(self.places) == place)?;
        *from = end.port().saturating_add(1);
        Some(end)
    }
}

/// Ports below belong to services.
const FIRST_PORT: u16 = 1024;

/// The architecture of the papers' UP, which has one lock.
pub(crate) fn uniprocessor() -> Architecture {
    Architecture::named(include_str!("uniprocessor.txt").trim_end())
}

/// The threads of a run.
#[derive(Default)]
struct SenderThreads {
    stop: Arc<Flag>,
    /// Bytes that applications have passed to the stack. Not part of the machine: uncharged.
    sent: Arc<AtomicU64>,
    /// The application of a thread that does everything, once there is one.
    late: Arc<Mutex<Option<Application>>>,
}

impl SenderThreads {
    /// Starts the drivers' threads.
    fn start(&self, drivers: Vec<Driver<Vsmp>>, alone: bool) -> Vec<usize> {
        let start = |(index, mut driver): (usize, Driver<Vsmp>)| {
            let (stop, late) = (self.stop.clone(), self.late.clone());
            Vsmp::spawn(&format!("driver{index}"), None, ThreadClass::Receive, move || {
                if alone {
                    return do_everything(driver, &stop, &late);
                }
                while !stop.load(Ordering::Acquire) {
                    if driver.poll() == 0 {
                        driver.wait(None);
                    }
                }
            })
        };
        drivers.into_iter().enumerate().map(start).collect()
    }

    /// Starts the applications.
    fn start_applications(&self, mut apps: Vec<Application>, alone: bool) -> Vec<usize> {
        if alone {
            *self.late.lock().unwrap_or_else(PoisonError::into_inner) = apps.pop();
        }
        let start = |(index, app): (usize, Application)| {
            Vsmp::spawn(&format!("application{index}"), None, ThreadClass::Application, move || app.run())
        };
        apps.into_iter().enumerate().map(start).collect()
    }
}

/// The loop of the only thread of a stack.
fn do_everything(mut driver: Driver<Vsmp>, stop: &Flag, late: &Mutex<Option<Application>>) {
    let (mut app, mut events) = (None, Vec::new());
    while !stop.load(Ordering::Acquire) {
        let mut busy = driver.poll() > 0;
        if app.is_none() {
            app = late.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
        if let Some(app) = &mut app {
            Vsmp::work(Step::Poll, 1);
            app.set.try_wait(&mut events, MOST_EVENTS);
            busy |= app.serve(&events);
        }
        if !busy {
            driver.wait(Some(Duration::from_micros(100)));
        }
    }
}

/// A thread of the application.
struct Application {
    stack: Stack<Vsmp>,
    set: Arc<PollSet<Vsmp>>,
    sockets: Vec<Socket>,
    turns: Turns,
    payload: Arc<[u8]>,
    stop: Arc<Flag>,
    sent: Arc<AtomicU64>,
}

impl Application {
    fn run(mut self) {
        let mut events = Vec::new();
        while !self.stop.load(Ordering::Acquire) {
            Vsmp::work(Step::Poll, 1);
            if self.turns.len() > 0 {
                self.set.try_wait(&mut events, MOST_EVENTS);
            } else {
                self.set.wait(&mut events, MOST_EVENTS, None);
            }
            self.serve(&events);
        }
    }

    /// Gives each connection that can send its turn. False: there is none.
    fn serve(&mut self, events: &[PollEvent]) -> bool {
        events.iter().for_each(|event| self.turns.add(event.token));
        let count = self.turns.len();
        for _ in 0..count {
            let Some(token) = self.turns.take() else { break };
            if self.send(token) {
                self.turns.add(token);
            }
        }
        count > 0
    }

    /// Sends until there is no room, at most [`TURN`] pages. Data that did not fit is sent again from its beginning,
    /// because its content does not matter. True: there is room left.
    fn send(&self, token: usize) -> bool {
        Vsmp::work(Step::Application, 1);
        let socket = &self.sockets[token];
        machine::application_event(Arc::as_ptr(socket).addr());
        for _ in 0..TURN {
            let chunks = tcp::Chunks::from_iter([Chunk::part(self.payload.clone(), 0..PAGE)]);
            let Reply::Sent(Ok(sent)) = self.stack.call(&socket.target(), Call::Send(tcp::Send { chunks })) else {
                return false;
            };
            self.sent.fetch_add(sent.accepted as u64, Relaxed);
            if !sent.rest.is_empty() {
                if sent.accepted == PAGE {
                    // The kernel prepares the next page before it looks at the room for it.
                    Vsmp::work(Step::Call, 1);
                }
                return false;
            }
        }
        true
    }
}

/// Whether rates rise or fall: the line through them changes by more than [`DRIFT`] of their mean from the first to the
/// last, and its slope is not what noise makes of none (Student's t for the slope of a regression). At least three
/// rates.
fn drifts(rates: &[f64]) -> bool {
    let n = rates.len() as f64;
    let (middle, mean) = ((n - 1.0) / 2.0, rates.iter().sum::<f64>() / n);
    let from_middle = || rates.iter().enumerate().map(|(at, rate)| (at as f64 - middle, rate - mean));
    let spread: f64 = from_middle().map(|(x, _)| x * x).sum();
    let slope = from_middle().map(|(x, y)| x * y).sum::<f64>() / spread;
    let left: f64 = from_middle().map(|(x, y)| (y - slope * x).powi(2)).sum();
    let error = (left / (n - 2.0) / spread).sqrt();
    slope.abs() * (n - 1.0) > DRIFT * mean && slope.abs() > SIGNIFICANT * error
}

/// Measures the bytes that the clients have received, window by window.
struct Meter<'a, B> {
    window: Duration,
    bytes: B,
    sent: &'a AtomicU64,
    /// Bytes received, and bytes appended, in each window.
    windows: Vec<(u64, u64)>,
}

impl<B: Fn() -> u64> Meter<'_, B> {
    fn pass(&mut self) {
        let before = ((self.bytes)(), self.sent.load(Relaxed));
        nap::<Vsmp>(self.window);
        self.windows.push(((self.bytes)() - before.0, self.sent.load(Relaxed) - before.1));
    }

    /// Whether the latest windows are alike.
    fn is_steady(&self) -> bool {
        let Some(latest) = self.windows.len().checked_sub(ALIKE).map(|first| &self.windows[first..]) else {
            return false;
        };
        let received = latest.iter().map(|(received, _)| *received as f64);
        let (least, most) = (received.clone().fold(f64::MAX, f64::min), received.clone().fold(0.0, f64::max));
        let rates: Vec<f64> = self.windows.iter().map(|(received, _)| *received as f64).collect();
        if rates.len() < SLOPED || drifts(&rates[rates.len() - SLOPED..]) {
            return false;
        }
        let (received, appended) = (received.sum::<f64>(), latest.iter().map(|(_, sent)| *sent as f64).sum::<f64>());
        let mean = received / ALIKE as f64;
        most - least <= TOLERANCE * mean && (received - appended).abs() <= TOLERANCE * received
    }

    /// Waits until the windows are alike. False: they never were.
    fn settle(&mut self) -> bool {
        (0..MOST_WINDOWS).any(|_| {
            self.pass();
            self.is_steady()
        })
    }

    /// Measures; returns the time that it took.
    fn measure(&mut self, stretch: Duration, capture: Option<&WireCapture>) -> (Measured, Duration) {
        lock_profile().reset();
        self.windows.clear();
        let (account, start) = (machine::account(), Vsmp::now());
        if let Some(capture) = capture {
            machine::record(stretch.as_nanos() as u64);
            capture.open(stretch.as_nanos() as u64);
        }
        (0..MEASURED).for_each(|_| self.pass());
        let time = Duration::from_nanos(Vsmp::now() - start);
        let rate = |(bytes, _): &(u64, u64)| *bytes as f64 * 8.0 / self.window.as_secs_f64() / 1e6;
        let bytes = self.windows.iter().map(|(received, _)| received).sum();
        let measured = Measured {
            windows: self.windows.iter().map(rate).collect(),
            timeline: machine::recorded(),
            capture: capture.map(WireCapture::bytes),
            ..Measured::since(&account, time, bytes)
        };
        (measured, time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Section 4.2: "each of the four threads uses each NIC, and every thread has the same number of connections that map to
    /// each NIC". The same holds for cells, which a hash chooses.
    #[test]
    fn each_thread_has_as_many_connections_at_each_card_and_in_each_cell() {
        for (threads, cards, places) in [(4, 6, 4), (4, 6, 8), (1, 6, 1), (3, 2, 3), (4, 4, 4)] {
            let connections = 2 * threads * cards * places;
            let (mut at, mut in_cell) = (HashMap::new(), HashMap::new());
            for n in 0..connections {
                *at.entry((n % threads, card_of(n, threads, cards))).or_insert(0) += 1;
                *in_cell.entry((n % threads, place_of(n, places))).or_insert(0) += 1;
            }
            assert_eq!((at.len(), in_cell.len()), (threads * cards, threads * places), "{threads}, {cards}, {places}");
            assert!(at.values().all(|count| *count == 2 * places), "{threads} threads, {cards} cards: {at:?}");
            assert!(
                in_cell.values().all(|count| *count == 2 * cards),
                "{threads} threads, {places} places: {in_cell:?}"
            );
        }
    }

    /// 256 KB as in the paper, unless the machine's memory has less for each, and two pages at least.
    #[test]
    fn send_buffers_share_the_memory_of_the_machine() {
        let preset = Preset::named("opteron-275").expect("it is built in");
        let buffer = |megabytes: u64, connections: usize| {
            let preset = preset.with("machine.send_memory", megabytes << 20).expect("a number");
            let arch = uniprocessor();
            let kernel = Kernel::OfThePaper;
            Senders { arch, cpus: 1, connections, preset, kernel, seed: 1, ipv6: false, lock_kind: None }.buffer()
        };
        assert_eq!([6, 768, 16_384].map(|connections| buffer(192, connections)), [262_144, 262_144, 12_288]);
        assert_eq!([6, 768, 16_384].map(|connections| buffer(256, connections)), [262_144, 262_144, 16_384]);
        assert_eq!([1, 6, 768].map(|connections| buffer(1, connections)), [262_144, 174_762, 8192]);
    }

    /// A slow rise that no four windows show is a drift; noise, and a rise that is too small to matter, are not.
    #[test]
    fn a_slow_rise_is_found_and_noise_is_none() {
        let rates = |of: &dyn Fn(f64) -> f64| (0..SLOPED).map(|n| of(n as f64)).collect::<Vec<_>>();
        let noise = |n: f64| if n % 2.0 == 0.0 { 3.0 } else { -3.0 };
        assert!(drifts(&rates(&|n| 100.0 + n + 0.1 * noise(n))), "7 % in eight windows");
        assert!(drifts(&rates(&|n| 107.0 - n)));
        assert!(!drifts(&rates(&|n| 100.0 + 0.5 * n)), "3.5 % is less than is looked for");
        assert!(!drifts(&rates(&|n| 100.0 + noise(n))));
        assert!(!drifts(&rates(&|_| 100.0)));
        // Large noise may look like a slope.
        let ragged = [100.0, 70.0, 120.0, 95.0, 80.0, 130.0, 90.0, 110.0];
        assert!(!drifts(&ragged));
    }
}
