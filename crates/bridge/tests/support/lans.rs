//! Bridges, and the links between them, in virtual time. BPDUs cross as frames. After each effect the active topology is
//! looked at: if it has a loop at any moment, that is remembered.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use bridge::{Effect, PortState, Role, Stp, StpConfig, StpPortConfig};
use observe::Time;
use wire::stp::Bpdu;

use super::{port, station};

pub struct Link {
    pub ends: [(usize, u16); 2],
    /// Both ends see it up.
    pub up: bool,
    /// It carries frames.
    pub carries: bool,
    pub delay: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Delivery {
    at: Time,
    sequence: u64,
    link: usize,
    /// Index of the end that receives.
    end: usize,
    frame: [u8; 60],
}

pub struct Lans {
    pub bridges: Vec<Stp>,
    pub links: Vec<Link>,
    pub now: Time,
    flying: BinaryHeap<Reverse<Delivery>>,
    sequence: u64,
    /// The state of each port, as set by effects.
    states: Vec<Vec<PortState>>,
    /// When a loop was closed.
    pub loops: Vec<Time>,
    /// Of each flush: when, bridge, port.
    pub flushes: Vec<(Time, usize, u16)>,
    /// Of each BPDU: when, bridge, port, and it.
    pub sent: Vec<(Time, usize, u16, Bpdu)>,
    /// When a port last changed its state.
    pub last_change: Time,
}

impl Lans {
    /// `configs` has a bridge in each entry, `ends` a link; ports are numbered as they are used. Nothing is up.
    pub fn new(configs: &[StpConfig], ends: &[(usize, usize)]) -> Lans {
        let new = |(n, config): (u32, &StpConfig)| Stp::new(*config, station(n)).expect("a configuration");
        let mut bridges: Vec<Stp> = (1..).zip(configs).map(new).collect();
        let mut ports = vec![0; bridges.len()];
        let mut end = |bridge: usize| {
            let number = ports[bridge];
            ports[bridge] += 1;
            bridges[bridge].add_port(port(number), StpPortConfig::default(), Time::ZERO).expect("a port");
            (bridge, number)
        };
        let delay = Duration::from_micros(10);
        let link = |(a, b): &(usize, usize)| Link { ends: [end(*a), end(*b)], up: false, carries: true, delay };
        let links: Vec<Link> = ends.iter().map(link).collect();
        let states = ports.iter().map(|n| vec![PortState::Discarding; usize::from(*n)]).collect();
        let (loops, flushes, sent, flying) = (Vec::new(), Vec::new(), Vec::new(), BinaryHeap::new());
        let now = Time::ZERO;
        Lans { bridges, links, now, flying, sequence: 0, states, loops, flushes, sent, last_change: now }
    }

    /// All links with default bridges.
    pub fn with(bridges: usize, ends: &[(usize, usize)]) -> Lans {
        Lans::new(&vec![StpConfig::default(); bridges], ends)
    }

    pub fn set_up(&mut self, link: usize, up: bool) {
        self.links[link].up = up;
        for (bridge, number) in self.links[link].ends {
            self.bridges[bridge].set_up(port(number), up, self.now);
            self.perform(bridge);
        }
    }

    pub fn all_up(&mut self) {
        (0..self.links.len()).for_each(|link| self.set_up(link, true));
    }

    /// Lets time pass.
    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let due = self.bridges.iter().filter_map(Stp::next_deadline).min().unwrap_or(Time::MAX);
            let arrives = self.flying.peek().map_or(Time::MAX, |Reverse(delivery)| delivery.at);
            let next = due.min(arrives);
            if next > end {
                break;
            }
            assert!(next >= self.now, "time goes on");
            self.now = next;
            if arrives <= due {
                self.deliver();
            } else {
                for bridge in 0..self.bridges.len() {
                    self.bridges[bridge].advance(next);
                    self.perform(bridge);
                }
            }
        }
        self.now = end;
    }

    /// Runs until nothing has changed for a while, and returns how long the last change took.
    pub fn settle(&mut self, time: Duration) -> Duration {
        let start = self.now;
        self.last_change = start;
        self.run(time);
        self.last_change.since(start)
    }

    fn deliver(&mut self) {
        let Some(Reverse(delivery)) = self.flying.pop() else { return };
        let link = &self.links[delivery.link];
        let (bridge, number) = link.ends[delivery.end];
        if link.up && link.carries {
            match Bpdu::of_frame(&delivery.frame) {
                Ok(bpdu) => self.inject(bridge, number, &bpdu),
                // 9.3.4: a configuration BPDU that has become too old is not read.
                Err(error) => assert_eq!(error, wire::ParseError::BadField),
            }
        }
    }

    pub fn inject(&mut self, bridge: usize, number: u16, bpdu: &Bpdu) {
        self.bridges[bridge].receive(port(number), bpdu, self.now);
        self.perform(bridge);
    }

    fn perform(&mut self, bridge: usize) {
        while let Some(effect) = self.bridges[bridge].next_effect() {
            match effect {
                Effect::State { port, state } => {
                    self.states[bridge][port.index()] = state;
                    self.last_change = self.now;
                    if state == PortState::Forwarding && self.tree().is_none() {
                        self.loops.push(self.now);
                    }
                }
                Effect::Flush { port } => self.flushes.push((self.now, bridge, port.get())),
                Effect::Transmit { port, bpdu } => self.transmit(bridge, port.get(), bpdu),
            }
        }
    }

    fn transmit(&mut self, bridge: usize, number: u16, bpdu: Bpdu) {
        self.sent.push((self.now, bridge, number, bpdu));
        let frame = bpdu.emit(station(1000 + bridge as u32));
        for (at, link) in self.links.iter().enumerate().filter(|(_, link)| link.up) {
            let Some(from) = link.ends.iter().position(|end| *end == (bridge, number)) else { continue };
            self.sequence += 1;
            let delivery =
                Delivery { at: self.now + link.delay, sequence: self.sequence, link: at, end: 1 - from, frame };
            self.flying.push(Reverse(delivery));
        }
    }

    pub fn state(&self, bridge: usize, number: u16) -> PortState {
        self.states[bridge][usize::from(number)]
    }

    pub fn role(&self, bridge: usize, number: u16) -> Role {
        self.bridges[bridge].status(port(number)).expect("a port").role
    }

    fn forwards(&self, link: &Link) -> bool {
        link.up && link.carries && link.ends.iter().all(|(bridge, n)| self.state(*bridge, *n) == PortState::Forwarding)
    }

    /// Which bridges are connected by the links that forward; `None` if they form a loop.
    pub fn tree(&self) -> Option<Vec<usize>> {
        let (sets, cyclic) = self.components(|link| self.forwards(link));
        (!cyclic).then_some(sets)
    }

    /// The component of each bridge, and whether a link was superfluous.
    fn components(&self, with: impl Fn(&Link) -> bool) -> (Vec<usize>, bool) {
        let (mut sets, mut cyclic): (Vec<usize>, bool) = ((0..self.bridges.len()).collect(), false);
        for link in self.links.iter().filter(|link| with(link)) {
            let [a, b] = link.ends.map(|(bridge, _)| sets[bridge]);
            cyclic |= a == b;
            sets.iter_mut().filter(|set| **set == b).for_each(|set| *set = a);
        }
        (sets, cyclic)
    }

    /// Whether the two ends of a link are connected, by whatever links.
    pub fn connected(&self, link: usize) -> bool {
        let (parts, _) = self.components(|link| link.up && link.carries);
        let [a, b] = self.links[link].ends.map(|(bridge, _)| parts[bridge]);
        a == b
    }

    /// Checks the active topology at rest: a tree that spans each component, with the best bridge of the component as
    /// root.
    pub fn check(&self) -> Result<(), String> {
        let (parts, _) = self.components(|link| link.up && link.carries);
        let Some(tree) = self.tree() else { return Err("the active topology has a loop".into()) };
        for a in 0..parts.len() {
            for b in 0..a {
                if (parts[a] == parts[b]) != (tree[a] == tree[b]) {
                    return Err(format!(
                        "bridges {a} and {b}: linked is {}, connected by the tree {}",
                        parts[a] == parts[b],
                        tree[a] == tree[b]
                    ));
                }
            }
            let members = (0..parts.len()).filter(|b| parts[*b] == parts[a]);
            let best = members.map(|b| self.bridges[b].id()).min();
            if Some(self.bridges[a].root()) != best {
                return Err(format!("bridge {a} takes {:x?} for the root, not {best:x?}", self.bridges[a].root()));
            }
        }
        Ok(())
    }
}
