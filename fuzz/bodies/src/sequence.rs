//! Arbitrary sequences of frames, calls and time steps for a whole stack under two architectures.
//!
//! The first is the reference, which runs on one thread without locks; the second is the input's choice. Invariants
//! checked: G1, G2 and G4 by debug checks; G3 by comparing outcomes and counters; G5 and G8 at the end, when everything
//! has been reset and all timers have expired: no connection, no timer and no packet buffer may be left. Only one body
//! runs at a time in a process, because the pool of buffers is per process. Administration meanwhile is in `admin.rs`.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use stack::Architecture;
use tcp::SocketOption;
use testbed::frames;
use testbed::subject::{Outcome, Step, Subject, differ};

use crate::{admin, frame};

/// Ports that users listen on and bind.
pub const PORTS: [u16; 3] = [80, 81, 53];
/// Most steps of an input: enough for every state, few enough for thousands of inputs a second.
const LONGEST: usize = 200;

/// Runs `data` under the reference and under one other architecture.
pub fn stacks(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let Ok(choice) = u.choose_index(stack::ALL_ARCHITECTURES.len()) else { return };
    let rest = u.take_rest();
    under(Architecture::named(stack::ALL_ARCHITECTURES[choice]), rest);
}

/// Runs `data` under the reference and under `arch`; returns the counters.
///
/// # Panics
/// If the two differ, or resources are left at the end.
pub fn under(arch: Architecture, data: &[u8]) -> observe::CounterSnapshot {
    let before = pktbuf::live();
    let counters = {
        let mut pair = Pair {
            reference: introduced(Architecture::reference()),
            subject: introduced(arch),
            arch,
            last: Vec::new(),
        };
        let mut u = Unstructured::new(data);
        for _ in 0..LONGEST {
            if u.is_empty() {
                break;
            }
            match pair.step(&mut u) {
                Ok(Some(step)) => pair.happen(&step),
                Ok(None) => {}
                Err(_) => break,
            }
        }
        pair.end();
        pair.subject.node.stack.stats().counters
    };
    assert_eq!(pktbuf::live(), before, "packet buffers are left under {arch}");
    counters
}

/// A stack that knows the peer's link address.
fn introduced(arch: Architecture) -> Subject {
    let mut subject = Subject::new(arch, 1);
    subject.step(&Step::Frame(frames::arp_request()));
    subject
}

struct Pair {
    reference: Subject,
    subject: Subject,
    arch: Architecture,
    /// The last frame that the stack sent.
    last: Vec<u8>,
}

impl Pair {
    fn happen(&mut self, step: &Step) {
        let expected = self.reference.step(step);
        let found = self.subject.step(step);
        if let Some(difference) = differ(step, &found, &expected) {
            panic!("{} at {:?} {difference}", self.arch, self.subject.node.clock.now());
        }
        self.remember(&expected);
    }

    fn remember(&mut self, outcome: &Outcome) {
        if let Some(frame) = outcome.frames.iter().rev().find(|frame| !frames::is_arp(frame)) {
            self.last.clone_from(frame);
        }
    }

    /// The next step of the input; `None` if it names a socket and there is none.
    fn step(&self, u: &mut Unstructured<'_>) -> Result<Option<Step>> {
        Ok(match u.int_in_range(0..=29)? {
            0..=11 => Some(Step::Frame(frame::any(u, &self.last)?)),
            12..=14 => Some(Step::Pass(Duration::from_millis(*u.choose(&[1, 15, 40, 200, 1000, 3000, 70_000])?))),
            15..=18 => self.opening(u)?,
            19..=27 => self.connection(u)?,
            28 if u.ratio(1, 2)? => Some(admin::route(u)?),
            28 => Some(admin::knob(u)?),
            _ if u.ratio(1, 3)? => self.group(u)?,
            _ => self.datagram(u)?,
        })
    }

    /// Steps that open connections.
    fn opening(&self, u: &mut Unstructured<'_>) -> Result<Option<Step>> {
        let listener = some(u, self.reference.listeners.len())?;
        Ok(match u.int_in_range(0..=4)? {
            0 => Some(Step::Listen { port: *u.choose(&PORTS)?, backlog: u.int_in_range(0..=3)? }),
            1 => listener.map(Step::Unlisten),
            2 | 3 => listener.map(Step::Accept),
            _ => Some(Step::Connect { v6: u.ratio(1, 4)?, port: *u.choose(&PORTS)? }),
        })
    }

    /// User calls on a connection.
    fn connection(&self, u: &mut Unstructured<'_>) -> Result<Option<Step>> {
        let Some(socket) = some(u, self.reference.sockets.len())? else { return Ok(None) };
        Ok(Some(match u.int_in_range(0..=8)? {
            0 | 1 => Step::Send { socket, len: usize::from(u.arbitrary::<u16>()?) % 5000 },
            2 => {
                // A small buffer, or one for all data.
                let most = if u.ratio(1, 2)? { 100 } else { 1 << 16 };
                Step::Receive { socket, max: 1 + usize::from(u.arbitrary::<u16>()?) % most }
            }
            3 => Step::ReportUnread { socket, bytes: usize::from(u.arbitrary::<u16>()?) },
            4 | 5 => Step::Shutdown(socket),
            6 => Step::Close(socket),
            7 => Step::Abort(socket),
            _ => Step::Set { socket, option: option(u)? },
        }))
    }

    fn group(&self, u: &mut Unstructured<'_>) -> Result<Option<Step>> {
        let group = match u.int_in_range(0..=3)? {
            0 => Ipv4Addr::new(239, 1, 2, 4).into(),
            1 => Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 7).into(),
            2 => frames::STACK.into(),
            _ => Ipv4Addr::new(239, 1, 2, 3).into(),
        };
        let joins = u.ratio(2, 3)?;
        Ok(some(u, self.reference.datagrams.len())?.map(|socket| Step::Group { socket, group, joins }))
    }

    fn datagram(&self, u: &mut Unstructured<'_>) -> Result<Option<Step>> {
        let port = *u.choose(&PORTS)?;
        let len = usize::from(u.arbitrary::<u16>()?) % 4000;
        let socket = some(u, self.reference.datagrams.len())?;
        Ok(Some(socket.map_or(Step::Bind(port), |socket| Step::SendDatagram { socket, port, len })))
    }

    /// Resets everything, and lets all timers expire.
    fn end(&mut self) {
        for listener in 0..self.reference.listeners.len() {
            self.happen(&Step::Unlisten(listener));
        }
        for socket in 0..self.reference.sockets.len() {
            self.happen(&Step::Abort(socket));
        }
        for _ in 0..30 {
            self.happen(&Step::Pass(Duration::from_secs(10)));
        }
        let (reference, stats) = (self.reference.node.stack.stats(), self.subject.node.stack.stats());
        assert_eq!(stats.counters, reference.counters, "what {} counted, and what the reference counted", self.arch);
        assert_eq!((stats.connections, stats.timers), (0, 0), "connections and timers left under {}", self.arch);
    }
}

/// One of `n`, if there is any.
fn some(u: &mut Unstructured<'_>, n: usize) -> Result<Option<usize>> {
    if n == 0 { Ok(None) } else { u.choose_index(n).map(Some) }
}

fn option(u: &mut Unstructured<'_>) -> Result<SocketOption> {
    Ok(match u.int_in_range(0..=8)? {
        0 => SocketOption::NoDelay(u.arbitrary()?),
        1 => SocketOption::Cork(u.arbitrary()?),
        2 => SocketOption::SendBuffer(u.arbitrary()?),
        3 => SocketOption::ReceiveBuffer(u.arbitrary()?),
        4 => SocketOption::Linger(Some(Duration::from_secs(u.arbitrary::<u8>()?.into()))),
        5 => SocketOption::UserTimeout(Some(Duration::from_millis(u.arbitrary::<u16>()?.into()))),
        6 => SocketOption::WindowClamp(u.arbitrary()?),
        7 => SocketOption::QuickAck(u.arbitrary()?),
        _ => SocketOption::MaxSegment(u.arbitrary()?),
    })
}
