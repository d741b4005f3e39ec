//! The share of the table that each source holds. Above its share a source evicts its own packets: a flood from one
//! address gets a quarter of the memory, and the packets of others stay.
//!
//! An intrusive list for each source, oldest first, beside the one of all entries of a family, so that eviction never
//! searches. In IPv6 a /64 counts as one source, because a host that has one address of it can use all of them; on the
//! link itself every address counts separately.

use core::net::{IpAddr, Ipv6Addr};
use std::collections::HashMap;

use super::{NONE, ReassemblyTable};

/// A source may pin one `SHARE`th of the memory.
pub(super) const SHARE: usize = 4;

/// The entries of one source.
#[derive(Debug)]
struct Held {
    charge: usize,
    oldest: u32,
    newest: u32,
}

/// The entries of every source that has any.
#[derive(Debug, Default)]
pub(super) struct SourceTable(HashMap<IpAddr, Held>);

/// Neighbours of an entry in its source's list.
#[derive(Clone, Copy, Debug)]
pub(super) struct SourceLinks {
    older: u32,
    newer: u32,
}

impl SourceLinks {
    pub(super) const NONE: SourceLinks = SourceLinks { older: NONE, newer: NONE };
}

/// The source that an address is counted under.
pub(super) fn source_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(address) if !address.is_unicast_link_local() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
        address => address,
    }
}

impl ReassemblyTable {
    /// Bytes charged to a source now.
    pub fn memory_of(&self, source: IpAddr) -> usize {
        self.sources.0.get(&source_of(source)).map_or(0, |held| held.charge)
    }

    /// A new entry becomes its source's newest.
    pub(super) fn link_source(&mut self, slot: u32) {
        let (source, charge) = (self.entry(slot).source(), self.entry(slot).charge);
        let held = self.sources.0.entry(source).or_insert(Held { charge: 0, oldest: slot, newest: NONE });
        held.charge += charge;
        let older = core::mem::replace(&mut held.newest, slot);
        self.entry(slot).mates = SourceLinks { older, newer: NONE };
        if older != NONE {
            self.entry(older).mates.newer = slot;
        }
    }

    /// An entry was taken out of its slot.
    pub(super) fn unlink_source(&mut self, source: IpAddr, charge: usize, links: SourceLinks) {
        let SourceLinks { older, newer } = links;
        if older != NONE {
            self.entry(older).mates.newer = newer;
        }
        if newer != NONE {
            self.entry(newer).mates.older = older;
        }
        let Some(held) = self.sources.0.get_mut(&source) else { return };
        held.charge -= charge;
        if older == NONE {
            held.oldest = newer;
        }
        if newer == NONE {
            held.newest = older;
        }
        if held.oldest == NONE {
            self.sources.0.remove(&source);
        }
    }

    /// Changes the charge of a source.
    pub(super) fn charge_source(&mut self, source: IpAddr, more: usize, less: usize) {
        if let Some(held) = self.sources.0.get_mut(&source) {
            held.charge = held.charge + more - less;
        }
    }

    /// The oldest packet of a source that holds more than its share.
    pub(super) fn oldest_above_share(&self, source: IpAddr) -> Option<u32> {
        let held = self.sources.0.get(&source)?;
        (held.charge > self.cap / SHARE).then_some(held.oldest)
    }
}
