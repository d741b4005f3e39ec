//! VLANs (IEEE 802.1Q): their member ports, the members by which frames leave untagged, and changes to tags.

use wire::ethernet::VlanTag;

use crate::{PortNumber, PortSet};

/// The identifier of a VLAN, 1 to 4094. (0 is the priority tag's, which names no VLAN; 4095 is reserved.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vid(u16);

impl Vid {
    /// The default VLAN, of which a new port is an untagged member (IEEE 802.1Q table 9-2).
    pub const DEFAULT: Vid = Vid(1);

    /// `None` if it is not 1 to 4094.
    #[inline]
    pub const fn new(id: u16) -> Option<Vid> {
        if id >= 1 && id <= 4094 { Some(Vid(id)) } else { None }
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// The change to a frame's tag before it is transmitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagAction {
    /// Nothing.
    Keep,
    /// This tag is inserted after the addresses.
    Push(VlanTag),
    /// The tag is removed.
    Pop,
    /// The tag becomes this one: a priority tag gets the identifier of the frame's VLAN.
    Replace(VlanTag),
}

/// One VLAN.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vlan {
    pub(crate) members: PortSet,
    pub(crate) untagged: PortSet,
}

impl Vlan {
    /// The ports that frames of the VLAN arrive and leave by.
    pub fn members(&self) -> &PortSet {
        &self.members
    }

    /// Those of them by which they leave without a tag.
    pub fn untagged(&self) -> &PortSet {
        &self.untagged
    }

    /// The change to a frame of this VLAN that arrived with this tag and leaves by `port`. Priority and drop
    /// eligibility stay; a frame without a tag has priority 0.
    #[inline]
    pub(crate) fn action(&self, vid: Vid, tag: Option<VlanTag>, port: PortNumber) -> TagAction {
        match (tag, self.untagged.contains(port)) {
            (None, true) => TagAction::Keep,
            (Some(_), true) => TagAction::Pop,
            (None, false) => TagAction::Push(VlanTag { priority: 0, drop_eligible: false, id: vid.get() }),
            (Some(tag), false) if tag.id == vid.get() => TagAction::Keep,
            (Some(tag), false) => TagAction::Replace(VlanTag { id: vid.get(), ..tag }),
        }
    }
}

/// All VLANs of a bridge, by identifier. Each has addresses of its own in the forwarding database (independent VLAN
/// learning).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vlans {
    /// Up to the largest identifier that is used.
    by_id: Vec<Option<Box<Vlan>>>,
}

impl Vlans {
    /// The VLAN of this identifier, if a port is a member of it.
    #[inline]
    pub fn get(&self, vid: Vid) -> Option<&Vlan> {
        self.by_id.get(usize::from(vid.get()))?.as_deref()
    }

    /// The VLANs that have members, with their identifiers.
    pub fn iter(&self) -> impl Iterator<Item = (Vid, &Vlan)> {
        self.by_id.iter().zip(0..).filter_map(|(vlan, id)| Some((Vid(id), vlan.as_deref()?)))
    }

    /// Makes a port a member.
    pub(crate) fn join(&mut self, vid: Vid, port: PortNumber, untagged: bool) {
        let at = usize::from(vid.get());
        if self.by_id.len() <= at {
            self.by_id.resize(at + 1, None);
        }
        let vlan = self.by_id[at].get_or_insert_default();
        vlan.members.insert(port);
        vlan.untagged.set(port, untagged);
    }

    /// Ends a membership; a VLAN ends with its last one. `false`: there was none.
    pub(crate) fn leave(&mut self, vid: Vid, port: PortNumber) -> bool {
        let Some(slot) = self.by_id.get_mut(usize::from(vid.get())) else { return false };
        let Some(vlan) = slot else { return false };
        let was = vlan.members.contains(port);
        vlan.members.remove(port);
        vlan.untagged.remove(port);
        if vlan.members.is_empty() {
            *slot = None;
        }
        was
    }

    /// Ends all memberships of a port.
    pub(crate) fn leave_all(&mut self, port: PortNumber) {
        for id in (1..=4094).take(self.by_id.len()) {
            self.leave(Vid(id), port);
        }
    }
}
