//! Runs a cell: opens a connection for each queue pair, sends data both ways at once, closes both ends, and lets time
//! pass until nothing remains. Meanwhile no direction may pause for longer than TCP's time-outs explain.

#![allow(dead_code)] // the test and the soak use their parts

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use heddle::config::{BufferSizes, Config, ConnectionOptions};
use heddle::mem::MemConfig;
use heddle::{Connect, Stack, TcpListener, TcpStream};
use observe::{Counter, CounterSnapshot, DropReason, Time};
use sha2::Digest;
use wire::FourTuple;

use crate::cell::{Cell, Wrap};
use crate::flow::{Flow, Signs};
use crate::probability::{self, MOST_TRIES};
use crate::world::{World, WorldConfig};

/// Shorter pauses are ignored.
const LEAST_PAUSE: Duration = Duration::from_millis(500);
/// Within this time after the last byte everything must be gone: TIME-WAIT, and lost FINs before it.
const AFTERMATH: Duration = Duration::from_secs(3600);
const SERVER_PORT: u16 = 80;
const CLIENT_PORT: u16 = 40_000;

/// The result of a successful cell.
pub struct Outcome {
    /// Virtual time from the first SYN to the last byte.
    pub took: Duration,
    /// The longest time without a byte delivered, in either direction.
    pub longest_pause: Duration,
    /// Of both stacks.
    pub counters: CounterSnapshot,
}

/// One connection of the cell.
struct Conversation {
    client: TcpStream,
    server: Option<TcpStream>,
    /// From client to server, and back.
    flows: [Flow; 2],
}

struct Transfer<'a> {
    cell: &'a Cell,
    world: World,
    listener: TcpListener,
    /// As many as there are queue pairs, each on a queue of its own.
    conversations: Vec<Conversation>,
    started: Time,
    jumped: bool,
    /// Since when nothing is in flight, before a jump that requires it.
    quiet_since: Option<Time>,
}

/// Runs a cell; `recorder` gets a capture of the server's device.
///
/// # Errors
/// A description of the failure, without the cell.
pub fn run(cell: &Cell, recorder: Option<Box<dyn Write + Send>>) -> Result<Outcome, String> {
    let buffers = pktbuf::balance();
    let outcome = Transfer::open(cell, recorder)?.run();
    match pktbuf::balance() - buffers {
        0 => outcome,
        // A failure is reported first; its leaked buffers are irrelevant.
        left => outcome.and(Err(format!("{left} packet buffers were left behind by the stacks"))),
    }
}

fn config(cell: &Cell) -> Config {
    // Where two of three tries fail, fifteen in a row sometimes fail: giving up then is correct, and not tested here.
    let [syn_retries, syn_ack_retries, retries] = [MOST_TRIES; 3];
    let mut config = Config { syn_retries, syn_ack_retries, retries, ..Config::default() };
    if let Some(window) = cell.window {
        config.receive_buffer = BufferSizes { min: window, initial: window, max: window };
        let send = window.max(config.send_buffer.initial);
        config.send_buffer = BufferSizes { min: send, initial: send, max: send };
    }
    config
}

/// Moves the clock to shortly before the client's numbers wrap.
fn approach_wrap(world: &World, cell: &Cell, local: SocketAddr, remote: SocketAddr) {
    let tuple = FourTuple::new(local, remote);
    let (secrets, now) = (&world.b.inner_stack().shared().secrets, world.clock.now());
    match cell.wrap {
        Wrap::Nothing => {}
        Wrap::Sequence(before) => {
            // One number every four microseconds (RFC 6528).
            let ahead = 0u32.wrapping_sub(before).wrapping_sub(secrets.isn().beginning(&tuple, now).0.0);
            world.clock.advance(Duration::from_micros(4) * ahead);
        }
        Wrap::Timestamp(before) => {
            let value = secrets.isn().beginning(&tuple, now).1.wrapping_add(now.as_millis() as u32);
            let ahead = 0u32.wrapping_sub(before).wrapping_sub(value);
            world.clock.advance(Duration::from_millis(ahead.into()));
        }
    }
}

/// Addresses of server and client.
fn addresses(cell: &Cell) -> [IpAddr; 2] {
    let addresses = if cell.v6 { ["fd00::1", "fd00::2"] } else { ["10.0.0.1", "10.0.0.2"] };
    addresses.map(|address| address.parse().expect("an address"))
}

/// A port of the client for each queue pair, so that segments of its connection use that queue.
fn ports(cell: &Cell, client: &Stack, [remote, local]: [IpAddr; 2]) -> Vec<u16> {
    let queue = |port: u16| {
        let hash = client.inner_stack().flow(SocketAddr::new(local, port), SocketAddr::new(remote, SERVER_PORT)).hash;
        hash as usize % cell.queues
    };
    let on = |wanted: usize| (CLIENT_PORT..).find(|port| queue(*port) == wanted);
    (0..cell.queues).map(|number| on(number).expect("each queue has its ports")).collect()
}

impl Conversation {
    fn open(cell: &Cell, world: &World, local: SocketAddr, number: usize) -> Result<Conversation, String> {
        let remote = SocketAddr::new(addresses(cell)[0], SERVER_PORT);
        let client = Connect::new().local(local).start(&world.b, remote).map_err(|error| error.to_string())?;
        let now = world.clock.now();
        let mut flows = [1, 2].map(|stream| Flow::new(cell.seed, 2 * number as u64 + stream, cell.bytes, now));
        if cell.jumps_in_silence() {
            flows.iter_mut().for_each(|flow| flow.held_back = cell.bytes.div_ceil(2));
        }
        Ok(Conversation { client, server: None, flows })
    }

    /// Reads and writes as much as possible now. True: there was progress.
    fn pump(&mut self, now: Time) -> Result<bool, String> {
        let [up, down] = &mut self.flows;
        let client = |error| format!("client, {error}");
        // Until it is established a write would only be queued.
        let mut moved = false;
        if self.client.readiness().intersects(heddle::Readiness::CONNECTED) {
            moved |= up.write(&self.client).map_err(client)?;
            moved |= down.read(&self.client, now).map_err(client)?;
        } else if let Some(error) = self.client.take_error().unwrap() {
            return Err(format!("connect: {error}"));
        }
        if let Some(server) = &self.server {
            let at_server = |error| format!("server, {error}");
            moved |= up.read(server, now).map_err(at_server)?;
            moved |= down.write(server).map_err(at_server)?;
        }
        Ok(moved)
    }

    /// No direction may pause for longer than its sender's time-outs explain.
    fn watch(&mut self, cell: &Cell, tries: u32, now: Time) -> Result<(), String> {
        let outage = cell.outage();
        // Until the server's end exists, its data waits for the client's handshake.
        let senders = [&self.client, self.server.as_ref().unwrap_or(&self.client)];
        for (flow, sender) in self.flows.iter_mut().zip(senders) {
            if flow.waits_for_the_jump(cell.bytes) {
                flow.last_progress = now;
            }
            if flow.ended || flow.pause(now) < LEAST_PAUSE {
                continue;
            }
            let Some(status) = sender.status() else { return Err("the connection is gone".to_owned()) };
            let segments = [status.traffic.segments_out, status.traffic.segments_in];
            let has_data = status.unacknowledged > 0 || status.send_queue > 0;
            let judged = flow.judge(Signs { segments, time_out: status.rto, has_data }, tries, outage, now);
            judged.map_err(|wrong| format!("{wrong}; the sender: {status:?}"))?;
        }
        Ok(())
    }

    /// Whether nothing is left to send before the clock jumps, and everything is acknowledged, so that neither end
    /// sends. (An end with data that waits for a window would probe.)
    fn is_at_rest(&self, cell: &Cell) -> bool {
        let at_rest = |stream: &TcpStream| {
            stream.status().is_some_and(|status| status.unacknowledged == 0 && status.send_queue == 0)
        };
        self.flows.iter().all(|flow| flow.waits_for_the_jump(cell.bytes))
            && at_rest(&self.client)
            && self.server.as_ref().is_some_and(at_rest)
    }

    fn compare(&self, cell: &Cell) -> Result<(), String> {
        for (flow, name) in self.flows.iter().zip(["client to server", "server to client"]) {
            if flow.arrived != cell.bytes {
                return Err(format!("{name}: {} of {} bytes arrived", flow.arrived, cell.bytes));
            }
            if flow.sent.clone().finalize() != flow.received.clone().finalize() {
                return Err(format!("{name}: what arrived is not what was sent"));
            }
        }
        Ok(())
    }
}

impl<'a> Transfer<'a> {
    fn open(cell: &'a Cell, recorder: Option<Box<dyn Write + Send>>) -> Result<Transfer<'a>, String> {
        let link = MemConfig { mtu: cell.mtu, queues: cell.queues, ..MemConfig::default() };
        let terms = WorldConfig {
            tcp: config(cell),
            link,
            faults: cell.fault_plan(),
            recorder,
            ..WorldConfig::new(cell.architectures)
        };
        let mut world = World::on(WorldConfig { seeds: [cell.seed, !cell.seed], ..terms });
        let [server, client] = addresses(cell);
        let remote = SocketAddr::new(server, SERVER_PORT);
        let ports = ports(cell, &world.b, [server, client]);
        approach_wrap(&world, cell, SocketAddr::new(client, ports[0]), remote);
        world.settle();
        let listener = TcpListener::bind_with(&world.a, remote, 4, ConnectionOptions::default());
        let listener = listener.map_err(|error| error.to_string())?;
        listener.set_nonblocking(true).unwrap();
        let open = |(number, port)| Conversation::open(cell, &world, SocketAddr::new(client, port), number);
        let conversations = ports.into_iter().enumerate().map(open).collect::<Result<Vec<_>, _>>()?;
        let started = world.clock.now();
        Ok(Transfer { cell, world, listener, conversations, started, jumped: false, quiet_since: None })
    }

    fn flows(&mut self) -> impl Iterator<Item = &mut Flow> {
        self.conversations.iter_mut().flat_map(|conversation| &mut conversation.flows)
    }

    fn run(mut self) -> Result<Outcome, String> {
        let (mut last, tries) = (self.started, probability::tries_in_a_row(self.cell));
        while !self.flows().all(|flow| flow.ended) {
            if self.pump()? {
                last = self.world.clock.now();
                self.world.settle();
                continue;
            }
            let now = self.world.clock.now();
            self.conversations.iter_mut().try_for_each(|conversation| conversation.watch(self.cell, tries, now))?;
            self.world.step(now + Duration::from_secs(3600));
        }
        let took = last - self.started;
        let longest_pause = self.flows().map(|flow| flow.longest_pause).max().unwrap_or_default();
        self.conversations.iter().try_for_each(|conversation| conversation.compare(self.cell))?;
        let Transfer { cell, mut world, listener, conversations, .. } = self;
        drop((conversations, listener));
        aftermath(&mut world)?;
        let counters = world.counters();
        check_damage(cell, &counters, &world.injected())?;
        Ok(Outcome { took, longest_pause, counters })
    }

    /// Accepts new connections, and reads and writes on all. True: there was progress.
    fn pump(&mut self) -> Result<bool, String> {
        let now = self.world.clock.now();
        while let Ok((server, peer)) = self.listener.accept() {
            server.set_nonblocking(true).unwrap();
            let mut all = self.conversations.iter_mut();
            let known = all.find(|conversation| conversation.client.local_addr().unwrap() == peer);
            known.ok_or_else(|| format!("{peer} is nobody's address"))?.server = Some(server);
        }
        let mut moved = false;
        for conversation in &mut self.conversations {
            moved |= conversation.pump(now)?;
        }
        self.jump(now);
        Ok(moved)
    }

    /// Lets the clock jump once half of the data has arrived.
    fn jump(&mut self, now: Time) {
        let all = self.cell.bytes * self.conversations.len();
        let arrived: usize = self.flows().map(|flow| flow.arrived).sum();
        if self.jumped || self.cell.jump.is_zero() || arrived + self.cell.queues < all {
            return;
        }
        if self.cell.jumps_in_silence() && !self.is_silent(now) {
            return;
        }
        self.jumped = true;
        self.world.clock.advance(self.cell.jump);
        let now = self.world.clock.now();
        for flow in self.flows() {
            flow.held_back = 0;
            flow.excuse(now);
        }
    }

    /// Whether nothing has been in flight for a while: neither data nor acknowledgements, which may have waited for a
    /// neighbour's address until its resolution failed.
    fn is_silent(&mut self, now: Time) -> bool {
        if !self.conversations.iter().all(|conversation| conversation.is_at_rest(self.cell)) {
            self.quiet_since = None;
            return false;
        }
        now - *self.quiet_since.get_or_insert(now) > Duration::from_secs(10)
    }
}

/// Lets everything end, and checks that nothing is left.
fn aftermath(world: &mut World) -> Result<(), String> {
    let end = world.clock.now() + AFTERMATH;
    let alive = |world: &World| world.a.stats().connections + world.b.stats().connections;
    world.settle();
    while alive(world) > 0 && world.clock.now() < end {
        world.step(end);
    }
    // Frames still on the link arrive, too.
    world.pass(Duration::from_secs(5));
    for (stack, name) in [(&world.a, "server"), (&world.b, "client")] {
        let stats = stack.stats();
        if stats.connections != 0 || stats.timers != 0 {
            let (connections, timers) = (stats.connections, stats.timers);
            return Err(format!("{name}: {connections} connections and {timers} timers are left after an hour"));
        }
        if !stack.inner_stack().is_quiescent() {
            return Err(format!("{name}: something posted was never run"));
        }
    }
    Ok(())
}

/// The drop reasons of damaged packets.
const DAMAGE: [DropReason; 13] = [
    DropReason::IpTruncated,
    DropReason::IpBadVersion,
    DropReason::IpBadLength,
    DropReason::IpBadChecksum,
    DropReason::IpBadHeader,
    DropReason::Ipv4BadHeader,
    DropReason::IpBadOption,
    DropReason::FrameTooShort,
    DropReason::TcpTruncated,
    DropReason::TcpBadHeaderLength,
    DropReason::TcpBadOption,
    DropReason::TcpBadChecksum,
    DropReason::IpUnknownProtocol,
];

/// Damaged packets found by their receivers.
pub fn found_damaged(counters: &CounterSnapshot) -> u64 {
    DAMAGE.iter().map(|reason| counters.dropped(*reason)).sum()
}

/// The number of detected damaged packets is right: none if none is damaged, and all with a single flipped bit.
fn check_damage(cell: &Cell, counters: &CounterSnapshot, injected: &CounterSnapshot) -> Result<(), String> {
    let (found, done) = (found_damaged(counters), injected.get(Counter::FaultsCorrupted));
    if found != done && (cell.counts_damage() || !cell.damages()) {
        return Err(format!("{done} packets were damaged and {found} were found to be: {counters:?}"));
    }
    Ok(())
}
