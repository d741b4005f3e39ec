//! Spanning tree: STP and RSTP (IEEE 802.1D-2004 clause 17).
//!
//! [`Stp`] is one bridge's protocol entity as a value. Its methods are events (a port comes up, a BPDU arrives, time has
//! passed). Each runs the standard's state machines until none has a transition to make, and returns actions for the
//! caller as [`Effect`]s. Their order must be kept: a port is put into Discarding before the BPDU that lets the bridge at
//! the other end forward is transmitted. There is no clock: [`Stp::next_deadline`] is when [`Stp::advance`] next has work.
//!
//! | file | machines |
//! |---|---|
//! | `stp/port.rs` | the variables of a port; its timers as deadlines |
//! | `stp/information.rs` | Port Receive (17.23), Port Information (17.27) |
//! | `stp/selection.rs` | Port Role Selection (17.28) |
//! | `stp/transitions.rs` | Port Role Transitions (17.29), Port State Transition (17.30) |
//! | `stp/topology_change.rs` | Topology Change (17.31) |
//! | `stp/transmit.rs` | Port Transmit (17.26) |
//! | `stp/detection.rs` | Port Protocol Migration (17.24), Bridge Detection (17.25) |
//!
//! The standard's protocol does not prevent every transient loop: if bridges are cut off from the root and form a loop,
//! the old root's information may circulate until it is too old (count to infinity; Elmeleegy, Cox and Ng, INFOCOM
//! 2006), and meanwhile a loop may be closed. No rule of another protocol is added against that.
//!
//! Variables, conditions and states have the standard's names. One thread uses it, as control plane.

mod detection;
mod information;
mod port;
mod selection;
mod topology_change;
mod transitions;
mod transmit;

use core::fmt;
use std::collections::VecDeque;

use observe::Time;
use wire::ethernet::MacAddr;
use wire::stp::{Bpdu, BridgeId, PriorityVector, Times};

use self::information::SECOND;
pub use self::port::Role;
use self::port::StpPort;
use crate::{PortNumber, PortState};

/// The protocol version of the bridge (ForceProtocolVersion, 17.13.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StpVersion {
    /// STP on all ports.
    Stp,
    /// RSTP; on a port with no RSTP bridge at the other end, STP.
    Rstp,
}

/// A bridge's configuration; defaults are those of tables 17-1 and 17-2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StpConfig {
    /// Its protocol version.
    pub version: StpVersion,
    /// A multiple of 4096; the bridge with the smallest becomes root.
    pub priority: u16,
    /// Bridge Max Age in seconds, 6 to 40.
    pub max_age: u8,
    /// Bridge Hello Time in seconds, 1 or 2.
    pub hello: u8,
    /// Bridge Forward Delay in seconds, 4 to 30.
    pub forward_delay: u8,
    /// Transmit Hold Count, 1 to 10: the maximum number of BPDUs that a port sends in a second.
    pub hold_count: u8,
}

impl Default for StpConfig {
    fn default() -> StpConfig {
        let version = StpVersion::Rstp;
        StpConfig { version, priority: 0x8000, max_age: 20, hello: 2, forward_delay: 15, hold_count: 6 }
    }
}

/// A value of [`StpConfig`] or [`StpPortConfig`] that the standard does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StpConfigError(&'static str);

impl fmt::Display for StpConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl core::error::Error for StpConfigError {}

impl StpConfig {
    /// Checks the ranges of the values and their relations (17.14).
    ///
    /// # Errors
    /// The first invalid one.
    pub fn check(&self) -> Result<(), StpConfigError> {
        let delays = 2 * (u16::from(self.forward_delay) - u16::from(self.forward_delay > 0));
        let rules = [
            (self.priority & 0xfff == 0, "the bridge priority must be a multiple of 4096"),
            ((6..=40).contains(&self.max_age), "the max age must be 6 to 40 seconds"),
            ((1..=2).contains(&self.hello), "the hello time must be 1 or 2 seconds"),
            ((4..=30).contains(&self.forward_delay), "the forward delay must be 4 to 30 seconds"),
            ((1..=10).contains(&self.hold_count), "the transmit hold count must be 1 to 10"),
            (delays >= self.max_age.into(), "twice the forward delay less a second must be at least the max age"),
            (self.max_age >= 2 * (self.hello + 1), "the max age must be at least twice the hello time and a second"),
        ];
        rules.iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, says)| Err(StpConfigError(says)))
    }

    fn times(&self) -> Times {
        let seconds = |n: u8| u16::from(n) * SECOND;
        Times {
            message_age: 0,
            max_age: seconds(self.max_age),
            hello: seconds(self.hello),
            forward_delay: seconds(self.forward_delay),
        }
    }
}

/// A port's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StpPortConfig {
    /// A multiple of 16; of two paths with equal cost, the one with the smaller priority is used.
    pub priority: u8,
    /// The cost of the path by this port, 1 to 200,000,000; see [`path_cost`].
    pub cost: u32,
    /// AdminEdge: no bridge is at the other end. Until a BPDU arrives the port forwards at once.
    pub admin_edge: bool,
    /// AutoEdge: the port detects within 3 s whether no bridge is at the other end.
    pub auto_edge: bool,
    /// operPointToPointMAC: at most one other bridge is at the other end.
    pub point_to_point: bool,
}

impl Default for StpPortConfig {
    /// The defaults for 1 Gb/s and full duplex.
    fn default() -> StpPortConfig {
        StpPortConfig { priority: 128, cost: path_cost(1000), admin_edge: false, auto_edge: true, point_to_point: true }
    }
}

impl StpPortConfig {
    /// Checks the ranges of the values.
    ///
    /// # Errors
    /// The first invalid one.
    pub fn check(&self) -> Result<(), StpConfigError> {
        if self.priority & 0xf != 0 {
            return Err(StpConfigError("the port priority must be a multiple of 16"));
        }
        let allowed = (1..=200_000_000).contains(&self.cost);
        if allowed { Ok(()) } else { Err(StpConfigError("the path cost must be 1 to 200000000")) }
    }
}

/// The recommended path cost of a link with this rate in Mb/s (table 17-3).
pub const fn path_cost(megabits: u32) -> u32 {
    if megabits == 0 {
        return 200_000_000;
    }
    let cost = 20_000_000 / megabits;
    if cost == 0 { 1 } else { cost }
}

/// An action for the caller. Actions must be performed in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Set the state of a port.
    State {
        /// Which.
        port: PortNumber,
        /// The state.
        state: PortState,
    },
    /// Remove the addresses that were learned by the port.
    Flush {
        /// Which.
        port: PortNumber,
    },
    /// Transmit a BPDU, without a tag.
    Transmit {
        /// By this port.
        port: PortNumber,
        /// It.
        bpdu: Bpdu,
    },
}

/// What a port is in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortStatus {
    /// Its role.
    pub role: Role,
    /// Its state.
    pub state: PortState,
    /// No bridge is at its other end.
    pub edge: bool,
    /// It uses RSTP.
    pub rapid: bool,
}

/// See the head of the file.
pub struct Stp {
    config: StpConfig,
    id: BridgeId,
    /// BridgeTimes
    times: Times,
    root_priority: PriorityVector,
    root_times: Times,
    root_port: Option<PortNumber>,
    /// By number.
    slots: Vec<Option<StpPort>>,
    effects: VecDeque<Effect>,
    now: Time,
}

impl Stp {
    /// A bridge with this address and without ports.
    ///
    /// # Errors
    /// As [`StpConfig::check`].
    pub fn new(config: StpConfig, address: MacAddr) -> Result<Stp, StpConfigError> {
        config.check()?;
        let (id, times) = (BridgeId::new(config.priority, address), config.times());
        let root_priority = PriorityVector { root: id, cost: 0, bridge: id, port: 0 };
        let (slots, effects) = (Vec::new(), VecDeque::new());
        let (root_times, root_port) = (times, None);
        Ok(Stp { config, id, times, root_priority, root_times, root_port, slots, effects, now: Time::ZERO })
    }

    /// Adds a port, which is down and Discarding, or resets it to that state.
    ///
    /// # Errors
    /// As [`StpPortConfig::check`].
    pub fn add_port(&mut self, port: PortNumber, config: StpPortConfig, now: Time) -> Result<(), StpConfigError> {
        config.check()?;
        if self.slots.len() <= port.index() {
            self.slots.resize(port.index() + 1, None);
        }
        let rstp = self.is_rstp();
        self.slots[port.index()] = Some(StpPort::new(port, config, rstp));
        self.advance(now);
        Ok(())
    }

    /// Removes a port.
    pub fn remove_port(&mut self, port: PortNumber, now: Time) {
        if self.slots.get_mut(port.index()).is_some_and(|slot| slot.take().is_some()) {
            self.reselect();
            self.advance(now);
        }
    }

    /// The port has come up, or gone down.
    pub fn set_up(&mut self, port: PortNumber, up: bool, now: Time) {
        let Some(port) = self.port_at(port.index()) else { return };
        if port.enabled != up {
            port.enabled = up;
            // Held while the port is down (17.23, 17.24).
            port.edge_delay.start(now, port::MIGRATE_TIME);
            port.mdelay.start(now, port::MIGRATE_TIME);
        }
        self.advance(now);
    }

    /// A BPDU has arrived. `false`: it is ignored, because there is no such port, it is down, or the configuration BPDU
    /// is the port's own (9.3.4).
    pub fn receive(&mut self, port: PortNumber, bpdu: &Bpdu, now: Time) -> bool {
        // Timers that were due before the BPDU arrived come first.
        self.advance(now);
        let id = self.id;
        let Some(port) = self.port_at(port.index()) else { return false };
        let own = matches!(bpdu, Bpdu::Config(config)
            if config.priority.bridge == id && config.priority.port == port.id());
        if own || !port.enabled {
            return false;
        }
        port.take(bpdu, now);
        self.advance(now);
        true
    }

    /// Makes the port test again whether the bridge at its other end uses RSTP (17.19.13).
    pub fn check_migration(&mut self, port: PortNumber, now: Time) {
        let rstp = self.is_rstp();
        if let Some(port) = self.port_at(port.index()) {
            port.mcheck = rstp;
        }
        self.advance(now);
    }

    /// Runs the timers due at `now`. A time before the last one counts as the last one.
    pub fn advance(&mut self, now: Time) {
        let now = self.now.max(now);
        self.now = now;
        let machines = [
            Stp::migration,
            Stp::bridge_detection,
            Stp::information,
            Stp::role_transition,
            Stp::state_transition,
            Stp::topology_change,
            Stp::transmit,
        ];
        loop {
            let mut moved = self.select(now);
            for at in 0..self.slots.len() {
                for machine in machines {
                    while machine(self, at, now) {
                        moved = true;
                    }
                }
            }
            if !moved {
                return;
            }
        }
    }

    /// When [`Stp::advance`] must next be called; `None`: not before another event.
    pub fn next_deadline(&self) -> Option<Time> {
        let deadlines = self.ports().filter(|port| port.enabled).flat_map(StpPort::deadlines);
        deadlines.filter(|deadline| *deadline > self.now).min()
    }

    /// Takes the next action for the caller.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// The bridge's identifier.
    pub fn id(&self) -> BridgeId {
        self.id
    }

    /// The bridge taken to be the root.
    pub fn root(&self) -> BridgeId {
        self.root_priority.root
    }

    /// The cost of the path to the root; 0 for the root.
    pub fn root_cost(&self) -> u32 {
        self.root_priority.cost
    }

    /// The Root Port; `None`: this is the root.
    pub fn root_port(&self) -> Option<PortNumber> {
        self.root_port
    }

    /// What a port is in the tree.
    pub fn status(&self, port: PortNumber) -> Option<PortStatus> {
        let port = self.slots.get(port.index())?.as_ref()?;
        let state = match (port.learning, port.forwarding) {
            (_, true) => PortState::Forwarding,
            (true, false) => PortState::Learning,
            (false, false) => PortState::Discarding,
        };
        Some(PortStatus { role: port.role, state, edge: port.oper_edge, rapid: port.send_rstp })
    }

    fn is_rstp(&self) -> bool {
        self.config.version == StpVersion::Rstp
    }

    fn reselect(&mut self) {
        self.ports_mut().for_each(|port| (port.reselect, port.selected) = (true, false));
    }

    fn ports(&self) -> impl Iterator<Item = &StpPort> {
        self.slots.iter().flatten()
    }

    fn ports_mut(&mut self) -> impl Iterator<Item = &mut StpPort> {
        self.slots.iter_mut().flatten()
    }

    fn port_at(&mut self, at: usize) -> Option<&mut StpPort> {
        self.slots.get_mut(at)?.as_mut()
    }
}
