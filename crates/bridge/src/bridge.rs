//! [`Bridge`]: member list, forwarding database, storm control and spanning tree of one thread, or behind one lock.
//!
//! Where several threads forward, it is the control plane alone: behind a lock, with a handle to the shared table in place
//! of a table of its own. The threads have copies of its member list, and call [`forward`].
//!
//! With spanning tree a port is Discarding until spanning tree changes its state; without, it has the state with which it
//! was added. The effects of spanning tree are performed here, except for BPDUs: the caller transmits them
//! ([`Bridge::next_bpdu`]) after each call that may have made some, before it forwards another frame.

use std::collections::VecDeque;

use observe::{Counters, DropReason, Time};
use wire::ethernet::{MIN_FRAME_LEN, MacAddr};
use wire::stp::Bpdu;

use crate::fdb::{Fdb, FdbControl, FdbEntry, FdbKey};
use crate::forward::{Arrival, Decision, Exception, InputPort, forward};
use crate::members::{Members, PortConfig, PortState};
use crate::storm::Storm;
use crate::stp::{Effect, Stp, StpConfig, StpConfigError, StpPortConfig};
use crate::table::{FdbConfig, FdbTable};
use crate::{PortNumber, Vid};

/// See the head of the file.
pub struct Bridge<T = FdbTable> {
    members: Members,
    table: T,
    /// By port number.
    storms: Vec<Storm>,
    tree: Option<Tree>,
}

/// Spanning tree, with the BPDUs that wait for transmission.
struct Tree {
    stp: Stp,
    address: MacAddr,
    bpdus: VecDeque<(PortNumber, Bpdu)>,
}

impl Bridge {
    /// A bridge without ports, which does not distinguish VLANs.
    pub fn new(fdb: FdbConfig) -> Bridge {
        Bridge::with_table(FdbTable::new(fdb))
    }
}

impl<T: FdbControl> Bridge<T> {
    /// As [`Bridge::new`], with this table.
    pub fn with_table(table: T) -> Bridge<T> {
        Bridge { members: Members::new(), table, storms: Vec::new(), tree: None }
    }

    /// The member list.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// The forwarding database.
    pub fn table(&self) -> &T {
        &self.table
    }

    /// The forwarding database, to flush it, to age its entries, and to add addresses.
    pub fn table_mut(&mut self) -> &mut T {
        &mut self.table
    }

    /// Adds a port in this state, or changes its configuration if it exists. With spanning tree use
    /// [`Bridge::join_tree`], too.
    pub fn add_port(&mut self, port: PortNumber, config: PortConfig, state: PortState) {
        if self.storms.len() <= port.index() {
            self.storms.resize_with(port.index() + 1, Storm::default);
        }
        self.storms[port.index()] = Storm::default();
        self.members.add(port, config, state);
    }

    /// Changes the configuration of a port. `false`: there is no such port.
    pub fn configure(&mut self, port: PortNumber, change: impl FnOnce(&mut PortConfig)) -> bool {
        self.members.configure(port, change)
    }

    /// Removes a port, and with it all addresses behind it. Returns whether the port existed.
    pub fn remove_port(&mut self, port: PortNumber, now: Time) -> bool {
        if let Some(tree) = &mut self.tree {
            tree.stp.remove_port(port, now);
            self.perform();
        }
        if let Some(tree) = &mut self.tree {
            tree.bpdus.retain(|(by, _)| *by != port);
        }
        let was = self.members.remove(port);
        self.table.forget_port(port);
        was
    }

    /// Starts spanning tree, as the bridge with this address; ports take part once they [join](Bridge::join_tree).
    ///
    /// # Errors
    /// As [`StpConfig::check`].
    pub fn start_tree(&mut self, config: StpConfig, address: MacAddr) -> Result<(), StpConfigError> {
        self.tree = Some(Tree { stp: Stp::new(config, address)?, address, bpdus: VecDeque::new() });
        Ok(())
    }

    /// This bridge's view of the spanning tree.
    pub fn tree(&self) -> Option<&Stp> {
        self.tree.as_ref().map(|tree| &tree.stp)
    }

    /// Makes a port part of the tree: it discards until the tree changes its state. Does nothing without spanning tree.
    ///
    /// # Errors
    /// As [`StpPortConfig::check`].
    pub fn join_tree(&mut self, port: PortNumber, config: StpPortConfig, now: Time) -> Result<(), StpConfigError> {
        if let Some(tree) = &mut self.tree {
            tree.stp.add_port(port, config, now)?;
            self.members.set_state(port, PortState::Discarding);
        }
        self.perform();
        Ok(())
    }

    /// Sets a port up, or down. The addresses of a port that goes down are removed, and no frame leaves by it. A port
    /// that comes up gets its state from spanning tree; without spanning tree it forwards.
    pub fn set_up(&mut self, port: PortNumber, up: bool, now: Time) {
        if !up {
            self.table.flush_port(port);
        }
        match &mut self.tree {
            Some(tree) if tree.stp.status(port).is_some() => {
                tree.stp.set_up(port, up, now);
                self.perform();
            }
            _ => {
                let state = if up { PortState::Forwarding } else { PortState::Discarding };
                self.members.set_state(port, state);
            }
        }
    }

    /// Processes a frame for which the decision was [`Decision::Bpdu`]. An unusable one is counted.
    pub fn take_bpdu(&mut self, port: PortNumber, frame: &[u8], counters: &Counters, now: Time) {
        let Some(tree) = &mut self.tree else { return counters.count_drop(DropReason::BpduIgnored) };
        match Bpdu::of_frame(frame) {
            Ok(bpdu) if tree.stp.receive(port, &bpdu, now) => self.perform(),
            _ => counters.count_drop(DropReason::BpduIgnored),
        }
    }

    /// Runs the timers of spanning tree that are due.
    pub fn advance(&mut self, now: Time) {
        if let Some(tree) = &mut self.tree {
            tree.stp.advance(now);
        }
        self.perform();
    }

    /// When [`Bridge::advance`] must next be called.
    pub fn next_deadline(&self) -> Option<Time> {
        self.tree.as_ref()?.stp.next_deadline()
    }

    /// The frame of the next BPDU to transmit, and its port.
    pub fn next_bpdu(&mut self) -> Option<(PortNumber, [u8; MIN_FRAME_LEN])> {
        let tree = self.tree.as_mut()?;
        let (port, bpdu) = tree.bpdus.pop_front()?;
        Some((port, bpdu.emit(tree.address)))
    }

    /// Performs the effects of spanning tree.
    fn perform(&mut self) {
        let Some(tree) = &mut self.tree else { return };
        while let Some(effect) = tree.stp.next_effect() {
            match effect {
                Effect::State { port, state } => _ = self.members.set_state(port, state),
                Effect::Flush { port } => _ = self.table.flush_port(port),
                Effect::Transmit { port, bpdu } => tree.bpdus.push_back((port, bpdu)),
            }
        }
    }

    /// Changes the state of a port. `false`: there is no such port.
    pub fn set_state(&mut self, port: PortNumber, state: PortState) -> bool {
        self.members.set_state(port, state)
    }

    /// Sets whether the bridge distinguishes VLANs. A change removes all learned addresses.
    pub fn set_filtering(&mut self, filtering: bool) {
        if self.members.is_filtering() != filtering {
            self.table.flush(|_, _| true);
        }
        self.members.set_filtering(filtering);
    }

    /// Makes a port a member of a VLAN. `false`: there is no such port.
    pub fn join(&mut self, vid: Vid, port: PortNumber, untagged: bool) -> bool {
        self.members.join(vid, port, untagged)
    }

    /// Ends a membership, and removes the addresses learned by it. Returns whether there was one.
    pub fn leave(&mut self, vid: Vid, port: PortNumber) -> bool {
        self.table.flush(|key, entry: FdbEntry| key.vlan() == Some(vid) && entry.port() == port);
        self.members.leave(vid, port)
    }

    /// Adds an address that does not age. `false`: the table has the maximum number of such entries, or there is no
    /// such port.
    pub fn set_fixed(&mut self, key: FdbKey, port: PortNumber, sticky: bool, now: Time) -> bool {
        self.members.get(port).is_some() && self.table.set_fixed(key, port, sticky, now)
    }
}

impl<T: FdbControl + Fdb> Bridge<T> {
    /// Decides about a frame that `port` has received, from its Ethernet header on. The caller counts the reason of a
    /// drop.
    #[inline]
    pub fn receive(&mut self, port: PortNumber, frame: &[u8], counters: &Counters, now: Time) -> Decision {
        match Arrival::of(port, frame) {
            Ok(arrival) => self.decide(&arrival, counters, now),
            Err(reason) => Decision::Drop(reason),
        }
    }

    /// The first part of [`Bridge::receive`], which is all of it for nearly every frame: it learns the source, and finds the one
    /// port by which the frame leaves as it is.
    ///
    /// # Errors
    /// [`Bridge::explain`] has the decision.
    #[inline(always)]
    pub fn relay(
        &mut self,
        port: PortNumber,
        frame: &[u8],
        counters: &Counters,
        now: Time,
    ) -> Result<PortNumber, Exception> {
        match InputPort::of(&self.members, port) {
            Some(ingress) => ingress.receive(&mut self.table, frame, counters, now),
            None => Err(Exception::Drop(Arrival::of(port, frame).err().unwrap_or(DropReason::InterfaceDown))),
        }
    }

    /// The decision about a frame that does not leave by one port as it is.
    pub fn explain(&mut self, port: PortNumber, exception: Exception, frame: &[u8], now: Time) -> Decision {
        match (InputPort::of(&self.members, port), self.storms.get_mut(port.index()), exception) {
            (_, _, Exception::Drop(reason)) => Decision::Drop(reason),
            (Some(ingress), Some(storm), exception) => ingress.decide(exception, storm, frame, now),
            _ => Decision::Drop(DropReason::InterfaceDown),
        }
    }

    /// [`Bridge::receive`] for a frame with headers that were parsed before.
    #[inline]
    pub fn decide(&mut self, frame: &Arrival, counters: &Counters, now: Time) -> Decision {
        let Some(storm) = self.storms.get_mut(frame.port.index()) else {
            return Decision::Drop(DropReason::InterfaceDown);
        };
        forward(&self.members, &mut self.table, storm, frame, counters, now)
    }
}
