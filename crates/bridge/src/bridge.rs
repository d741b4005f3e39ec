//! [`Bridge`]: member list, forwarding database and storm control of one thread, or behind one lock.

use observe::{Counters, DropReason, Time};

use crate::fdb::{Entry, Key};
use crate::forward::{Arrival, Decision, forward};
use crate::members::{Members, PortConfig, PortState};
use crate::storm::Storm;
use crate::table::{FdbConfig, Table};
use crate::{PortNumber, Vid};

/// See the head of the file.
pub struct Bridge {
    members: Members,
    table: Table,
    /// By port number.
    storms: Vec<Storm>,
}

impl Bridge {
    /// Without ports; VLANs are not told apart.
    pub fn new(fdb: FdbConfig) -> Bridge {
        Bridge { members: Members::new(), table: Table::new(fdb), storms: Vec::new() }
    }

    /// The member list.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// The forwarding database.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The same, to flush it, to let it age, and to enter addresses.
    pub fn table_mut(&mut self) -> &mut Table {
        &mut self.table
    }

    /// Adds a port, in this state, or configures it anew if it is there.
    pub fn add_port(&mut self, port: PortNumber, config: PortConfig, state: PortState) {
        if self.storms.len() <= port.index() {
            self.storms.resize_with(port.index() + 1, Storm::default);
        }
        self.storms[port.index()] = Storm::new(config.storm);
        self.members.add(port, config, state);
    }

    /// Changes how a port is configured; its storm control begins anew. `false`: there is no such port.
    pub fn configure(&mut self, port: PortNumber, change: impl FnOnce(&mut PortConfig)) -> bool {
        let there = self.members.configure(port, change);
        if let Some(member) = self.members.get(port) {
            self.storms[port.index()] = Storm::new(member.config.storm);
        }
        there
    }

    /// Removes a port, and with it all addresses behind it. Whether it was there.
    pub fn remove_port(&mut self, port: PortNumber) -> bool {
        self.table.forget_port(port);
        self.members.remove(port)
    }

    /// Changes what a port does with frames. `false`: there is no such port.
    pub fn set_state(&mut self, port: PortNumber, state: PortState) -> bool {
        self.members.set_state(port, state)
    }

    /// Whether VLANs are told apart. A change forgets all addresses that were learned.
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

    /// Ends a membership, and forgets the addresses that were learned by it. Whether there was one.
    pub fn leave(&mut self, vid: Vid, port: PortNumber) -> bool {
        self.table.flush(|key, entry: Entry| key.vlan() == Some(vid) && entry.port() == port);
        self.members.leave(vid, port)
    }

    /// Enters an address that does not age. `false`: the table has as many as it may have, or there is no such port.
    pub fn set_fixed(&mut self, key: Key, port: PortNumber, sticky: bool, now: Time) -> bool {
        self.members.get(port).is_some() && self.table.set_fixed(key, port, sticky, now)
    }

    /// Decides about a frame that `port` has received, from its Ethernet header on. The caller counts the reason of a
    /// drop.
    #[inline]
    pub fn receive(&mut self, port: PortNumber, frame: &[u8], counters: &Counters, now: Time) -> Decision {
        match Arrival::of(port, frame) {
            Ok(arrival) => self.decide(&arrival, counters, now),
            Err(reason) => Decision::Drop(reason),
        }
    }

    /// The same for a frame whose headers were read.
    #[inline]
    pub fn decide(&mut self, frame: &Arrival, counters: &Counters, now: Time) -> Decision {
        let Some(storm) = self.storms.get_mut(frame.port.index()) else {
            return Decision::Drop(DropReason::InterfaceDown);
        };
        forward(&self.members, &mut self.table, storm, frame, counters, now)
    }
}
