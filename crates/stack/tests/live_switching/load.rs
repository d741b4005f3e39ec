//! A stack that is switched again and again while it carries a load over a link with faults, in virtual time.
//!
//! The load has all kinds of state that must move: streams in both directions, opened by either end; a connection whose
//! handler answers and gets messages; connections that are opened, accepted, used and closed all the time; and
//! datagrams; each over IPv4 and over IPv6. Messages to the handlers are posted just before a switch, so that one waits
//! in a mailbox where the architecture has any. A run fails if a byte is lost, altered or delivered twice, if a
//! connection is reset, if a call fails, or if the load stops.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dev::fault::FaultPlan;
use observe::Counter;
use pktbuf::PktBuf;
use stack::call::{Call, Reply};
use stack::socket::handler::{Conn, ConnectionHandler, HandlerMessage, HandlerRef};
use stack::socket::{ListenerShared, TcpSocket, UdpShared};
use stack::{Architecture, Stack};
use sync::Real;
use testbed::frames::{PEER, PEER6, STACK, STACK6};
use testbed::node::{received, send};
use testbed::world::{World, WorldConfig};

/// Bytes of each long stream, in each direction.
const LENGTH: usize = 48 << 10;
/// The most that a user writes or reads at once.
const PIECE: usize = 5000;
/// Bytes of a short connection, in each direction.
const SHORT: usize = 300;
/// Short connections for each family.
const SHORTS: usize = 12;
/// Datagrams for each family.
const DATAGRAMS: usize = 40;
/// Messages for each handler.
const MESSAGES: usize = 60;
/// Steps of time between two switches, and at most in all.
const STEPS: usize = 3;
const MOST_STEPS: usize = 3000;
/// A port that [`World`]'s other end listens on, the port of the handlers, and that of datagrams.
const PORT: u16 = 80;
const HANDLED: u16 = 81;
const DATAGRAM: u16 = 5000;
/// The faults of the links.
const FAULTS: &str = "loss 2% reorder 3% distance 3 delay 2ms dup 1% seed 5";

/// The byte of stream `id` at `at`.
fn byte(id: usize, at: usize) -> u8 {
    (at.wrapping_mul(31) ^ (at >> 8).wrapping_mul(7) ^ id.wrapping_mul(101)) as u8
}

/// One end of a connection, and the progress of its two streams.
struct End {
    stack: Stack<Real>,
    socket: Arc<TcpSocket<Real>>,
    /// The streams' names, sent and received.
    ids: [usize; 2],
    length: usize,
    /// It was opened here, and not accepted: it ends a short connection. Only one end does, so that none is gone while
    /// segments for it may still be repeated on the way.
    opened: bool,
    sent: usize,
    received: usize,
    ended: bool,
    closed: bool,
}

impl End {
    fn new(stack: &Stack<Real>, socket: Arc<TcpSocket<Real>>, ids: [usize; 2], length: usize, opened: bool) -> End {
        End { stack: stack.clone(), socket, ids, length, opened, sent: 0, received: 0, ended: false, closed: false }
    }

    fn is_done(&self) -> bool {
        let over = self.length != SHORT || if self.opened { self.closed } else { self.ended };
        self.sent == self.length && self.received == self.length && over
    }

    /// Writes and reads as much as possible now.
    fn pump(&mut self) -> Result<(), String> {
        if self.sent < self.length && !self.closed {
            let end = self.length.min(self.sent + PIECE);
            let data: Vec<u8> = (self.sent..end).map(|at| byte(self.ids[0], at)).collect();
            match self.stack.call(&self.socket.target(), send(&data)) {
                Reply::Sent(Ok(sent)) => self.sent += sent.accepted,
                Reply::Sent(Err(error)) => return Err(format!("stream {}, send: {error:?}", self.ids[0])),
                _ => return Err(format!("stream {}, send: the connection is gone", self.ids[0])),
            }
        }
        while !self.ended {
            match self.stack.call(&self.socket.target(), Call::Receive(tcp::Receive { max: PIECE })) {
                Reply::Received(Err(tcp::Error::WouldBlock)) => break,
                Reply::Received(Err(error)) => return Err(format!("stream {}, receive: {error:?}", self.ids[1])),
                reply @ Reply::Received(_) => {
                    let (data, ended) = received(reply).unwrap_or_default();
                    for found in data {
                        if found != byte(self.ids[1], self.received) {
                            return Err(format!("stream {}: byte {} is another", self.ids[1], self.received));
                        }
                        self.received += 1;
                    }
                    self.ended = ended;
                }
                _ => return Err(format!("stream {}, receive: the connection is gone", self.ids[1])),
            }
        }
        Ok(())
    }

    /// Ends its half of the connection.
    fn shut_down(&mut self) -> Result<(), String> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        match self.stack.call(&self.socket.target(), Call::Shutdown(tcp::Shutdown::Write)) {
            Reply::ShutDown(Ok(())) => Ok(()),
            _ => Err(format!("stream {}, shutdown", self.ids[0])),
        }
    }
}

/// Returns the bytes that it receives, and sends each message.
#[derive(Default)]
struct Echo {
    /// Data for which there was no room.
    left: Vec<u8>,
    name: Arc<Mutex<Option<HandlerRef<Real>>>>,
}

impl Echo {
    fn send(&mut self, conn: &mut Conn<'_, Real>, data: &[u8]) {
        self.left.extend_from_slice(data);
        let taken = conn.send(&self.left).expect("the connection is open");
        self.left.drain(..taken);
    }
}

impl ConnectionHandler<Real> for Echo {
    fn open(&mut self, conn: &mut Conn<'_, Real>) {
        *self.name.lock().expect("nobody panics with it") = Some(conn.name());
    }

    fn data(&mut self, conn: &mut Conn<'_, Real>, data: PktBuf) {
        self.send(conn, &data);
    }

    fn writable(&mut self, conn: &mut Conn<'_, Real>) {
        self.send(conn, b"");
    }

    fn message(&mut self, conn: &mut Conn<'_, Real>, message: HandlerMessage) {
        let text = message.downcast::<Vec<u8>>().expect("the test posts bytes");
        self.send(conn, &text);
    }
}

/// The client of a handler: sends bytes below 128, and must receive them in order, and every message (bytes from 128
/// on) in order, in any mixture.
struct HandlerClient {
    stack: Stack<Real>,
    socket: Arc<TcpSocket<Real>>,
    name: Arc<Mutex<Option<HandlerRef<Real>>>>,
    sent: usize,
    echoed: usize,
    posted: usize,
    told: usize,
}

impl HandlerClient {
    const LENGTH: usize = 8 << 10;

    /// Posts a message, if the handler is open.
    fn post(&mut self) -> Result<(), String> {
        let name = self.name.lock().expect("nobody panics with it").clone();
        let Some(name) = name.filter(|_| self.posted < MESSAGES) else { return Ok(()) };
        let text = vec![128 | (self.posted % 128) as u8];
        self.posted += 1;
        name.post(Box::new(text)).map_err(|refused| format!("post: {refused}"))
    }

    fn pump(&mut self) -> Result<(), String> {
        if self.sent < Self::LENGTH {
            let end = Self::LENGTH.min(self.sent + 500);
            let data: Vec<u8> = (self.sent..end).map(|at| (at % 128) as u8).collect();
            match self.stack.call(&self.socket.target(), send(&data)) {
                Reply::Sent(Ok(sent)) => self.sent += sent.accepted,
                _ => return Err("send to a handler".to_owned()),
            }
        }
        loop {
            match self.stack.call(&self.socket.target(), Call::Receive(tcp::Receive { max: PIECE })) {
                Reply::Received(Err(tcp::Error::WouldBlock)) => return Ok(()),
                reply @ Reply::Received(Ok(_)) => {
                    for found in received(reply).unwrap_or_default().0 {
                        let (count, name) = match found {
                            0..128 => (&mut self.echoed, "byte"),
                            _ => (&mut self.told, "message"),
                        };
                        if usize::from(found % 128) != *count % 128 {
                            return Err(format!("a handler's answer: {name} {count} is {found}"));
                        }
                        *count += 1;
                    }
                }
                _ => return Err("receive from a handler".to_owned()),
            }
        }
    }

    fn is_done(&self) -> bool {
        self.echoed == Self::LENGTH && self.told == MESSAGES
    }
}

/// The part of a load that is over one version of IP.
struct Family {
    /// Both stacks' addresses, that of `a` first.
    hosts: [SocketAddr; 2],
    /// Number of the first stream.
    first: usize,
    listeners: [Arc<ListenerShared<Real>>; 2],
    /// Ends of long and short connections: opened, and accepted.
    ends: Vec<End>,
    shorts: usize,
    client: HandlerClient,
    /// Of `a` and of `b`.
    sockets: [Arc<UdpShared<Real>>; 2],
    datagrams: usize,
    arrived: HashSet<usize>,
}

fn failed<E: std::fmt::Debug>(what: &str) -> impl Fn(E) -> String {
    move |error| format!("{what}: {error:?}")
}

impl Family {
    fn new(world: &World<Stack<Real>>, hosts: [SocketAddr; 2], first: usize) -> Result<Family, String> {
        let stacks = [&world.a, &world.b];
        let at = |end: usize, port: u16| SocketAddr::new(hosts[end].ip(), port);
        let listen = |end: usize| stacks[end].listen(at(end, PORT), 64, Default::default()).map_err(failed("listen"));
        let listeners = [listen(0)?, listen(1)?];
        let name = Arc::new(Mutex::new(None));
        let known = name.clone();
        let make =
            move |_: &_| Box::new(Echo { left: Vec::new(), name: known.clone() }) as Box<dyn ConnectionHandler<Real>>;
        let listened = world.a.listen_with_handlers(at(0, HANDLED), 8, Default::default(), make);
        drop(listened.map_err(failed("listen with handlers"))?);
        let socket = world.b.connect(None, at(0, HANDLED), &Default::default()).map_err(failed("connect"))?;
        let (sent, echoed, posted, told) = (0, 0, 0, 0);
        let client = HandlerClient { stack: world.b.clone(), socket, name, sent, echoed, posted, told };
        let bind = |end: usize| stacks[end].bind_udp(at(end, DATAGRAM)).map_err(failed("bind"));
        let sockets = [bind(0)?, bind(1)?];
        let (ends, arrived) = (Vec::new(), HashSet::new());
        let mut family = Family { hosts, first, listeners, ends, shorts: 0, client, sockets, datagrams: 0, arrived };
        for end in [0, 1] {
            family.open(stacks, end, LENGTH)?;
        }
        Ok(family)
    }

    /// Opens a connection from one end to the other. The two streams are named after the opening port.
    fn open(&mut self, stacks: [&Stack<Real>; 2], from: usize, length: usize) -> Result<(), String> {
        let remote = SocketAddr::new(self.hosts[1 - from].ip(), PORT);
        let socket = stacks[from].connect(None, remote, &Default::default()).map_err(failed("connect"))?;
        let id = self.first + usize::from(socket.tuple().local_port);
        self.ends.push(End::new(stacks[from], socket, [id, !id], length, true));
        Ok(())
    }

    fn accept(&mut self, stacks: [&Stack<Real>; 2]) {
        for (end, stack) in stacks.into_iter().enumerate() {
            while let Some(socket) = self.listeners[end].accept() {
                let id = self.first + usize::from(socket.tuple().remote_port);
                let opened = self.ends.iter().find(|other| other.ids[0] == id);
                let length = opened.map_or(SHORT, |other| other.length);
                self.ends.push(End::new(stack, socket, [!id, id], length, false));
            }
        }
    }

    fn pump(&mut self, stacks: [&Stack<Real>; 2]) -> Result<(), String> {
        self.accept(stacks);
        if self.shorts < SHORTS {
            self.shorts += 1;
            self.open(stacks, self.shorts % 2, SHORT)?;
        }
        for end in &mut self.ends {
            end.pump()?;
            if end.length == SHORT && end.sent == SHORT && end.received == SHORT && end.opened {
                end.shut_down()?;
            }
        }
        self.client.pump()?;
        if self.datagrams < DATAGRAMS {
            let (from, to) = (self.datagrams % 2, 1 - self.datagrams % 2);
            let payload = PktBuf::from_slice(&self.datagrams.to_be_bytes()).ok_or("no packet buffer")?;
            let to = SocketAddr::new(self.hosts[to].ip(), DATAGRAM);
            stacks[from].send_udp(&self.sockets[from], payload, Some(to)).map_err(failed("send a datagram"))?;
            self.datagrams += 1;
        }
        for (stack, socket) in stacks.into_iter().zip(&self.sockets) {
            while let Ok(datagram) = stack.receive_udp(socket) {
                let number = usize::from_be_bytes(datagram.buf[..].try_into().map_err(failed("a datagram"))?);
                if number >= self.datagrams {
                    return Err(format!("datagram {number} was never sent"));
                }
                self.arrived.insert(number);
            }
        }
        Ok(())
    }

    /// Every connection has both ends, and all of its bytes.
    fn is_done(&self) -> bool {
        self.ends.len() == 2 * (2 + SHORTS) && self.ends.iter().all(End::is_done) && self.client.is_done()
    }

    fn standing(&self) -> String {
        let ends: Vec<_> =
            self.ends.iter().filter(|end| !end.is_done()).map(|end| (end.ids, end.sent, end.received)).collect();
        let HandlerClient { sent, echoed, posted, told, .. } = &self.client;
        format!("{} ends, unfinished {ends:?}, handler {sent} {echoed} {posted} {told}", self.ends.len())
    }
}

/// The result of a run.
#[derive(Debug)]
pub struct Shown {
    /// Switches made under load.
    pub switches: usize,
    /// The longest pause of callers, by the machine's clock.
    pub longest: Duration,
}

/// Carries the load while the stack is switched from one architecture to the other and back, again and again.
///
/// # Errors
/// A description of the failure.
pub fn carry(from: Architecture, to: Architecture) -> Result<Shown, String> {
    let faults: FaultPlan = FAULTS.parse().map_err(failed("the plan"))?;
    let mut world =
        World::<Stack<Real>>::new(WorldConfig { faults, ..WorldConfig::new([from, Architecture::reference()]) });
    let hosts = [[STACK.into(), PEER.into()], [STACK6.into(), PEER6.into()]];
    let mut families = Vec::new();
    for (number, hosts) in hosts.into_iter().enumerate() {
        families.push(Family::new(&world, hosts.map(|host| SocketAddr::new(host, 0)), number << 20)?);
    }
    let (mut switches, mut longest) = (0, Duration::ZERO);
    for step in 0.. {
        if families.iter().all(Family::is_done) {
            break;
        }
        if step == MOST_STEPS {
            let standing: Vec<_> = families.iter().map(Family::standing).collect();
            return Err(format!("the load stops after {switches} switches: {standing:?}"));
        }
        families.iter_mut().try_for_each(|family| family.pump([&world.a, &world.b]))?;
        if step % STEPS == 0 {
            families.iter_mut().try_for_each(|family| family.client.post())?;
            let next = if switches % 2 == 0 { to } else { from };
            let pause = world.a.set_architecture(next).map_err(|refused| format!("to {next}: {refused}"))?;
            if world.a.architecture() != next {
                return Err(format!("the stack is not under {next}"));
            }
            (switches, longest) = (switches + 1, longest.max(pause));
        }
        let end = world.clock.now() + Duration::from_millis(20);
        world.step(end);
    }
    let counters = world.counters();
    for counter in [Counter::ResetsOut, Counter::ResetsIn, Counter::ConnectionsReset, Counter::PanicsContained] {
        if counters.get(counter) != 0 {
            return Err(format!("{counter:?}: {}", counters.get(counter)));
        }
    }
    if counters.get(Counter::Retransmits) == 0 || families.iter().any(|family| family.arrived.len() < DATAGRAMS / 2) {
        return Err("the load has no faults, or its datagrams do not arrive".to_owned());
    }
    if switches < 4 {
        return Err(format!("{switches} switches are too few"));
    }
    Ok(Shown { switches, longest })
}
