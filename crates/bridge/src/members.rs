//! The member list: the ports of a bridge, their configuration, their states (set by spanning tree) and their VLANs.
//! Forwarding only reads it. Where several threads read (`switch`), a change makes a new list; otherwise it is made in
//! place.

use wire::ethernet::{HEADER_LEN, VlanTag};

use observe::DropReason;

use crate::storm::{FloodKind, StormLimits};
use crate::vlan::{TagAction, Vid, Vlan, Vlans};
use crate::{PortNumber, PortSet};

/// Longest frame that a bridge is made for, in bytes from the destination address on, without check sequence.
pub const LONGEST_FRAME: usize = 9216;

/// The configuration of a port; names and defaults are those of Linux's bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Source addresses of frames that arrive by the port are learned.
    pub learning: bool,
    /// Frames to unknown stations are flooded by it.
    pub flood: bool,
    /// Frames to groups are flooded by it.
    pub multicast_flood: bool,
    /// Broadcast frames are flooded by it.
    pub broadcast_flood: bool,
    /// No frame goes from an isolated port to another.
    pub isolated: bool,
    /// A frame may leave by the port that it arrived by.
    pub hairpin: bool,
    /// Most dynamic entries of the port; `None`: as many as its share of the table allows
    /// ([`Counts::admit`](crate::Counts::admit)).
    pub max_addresses: Option<u32>,
    /// Most bytes that a frame may have after its link header, without a tag.
    pub mtu: usize,
    /// Rate limits on frames that arrive by the port and are flooded.
    pub storm: StormLimits,
    /// The VLAN of frames without a tag, and of those with a priority tag; `None`: they are dropped.
    pub pvid: Option<Vid>,
    /// Frames of VLANs of which the port is not a member are dropped.
    pub ingress_filtering: bool,
}

impl Default for PortConfig {
    fn default() -> PortConfig {
        PortConfig {
            learning: true,
            flood: true,
            multicast_flood: true,
            broadcast_flood: true,
            isolated: false,
            hairpin: false,
            max_addresses: None,
            mtu: 1500,
            storm: StormLimits::default(),
            pvid: Some(Vid::DEFAULT),
            ingress_filtering: true,
        }
    }
}

/// The treatment of frames other than BPDUs by a port (IEEE 802.1D-2004 section 7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PortState {
    /// Drops them.
    Discarding,
    /// Learns their source addresses and drops them.
    Learning,
    /// Learns their source addresses and forwards them.
    Forwarding,
}

/// A member of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub(crate) config: PortConfig,
    pub(crate) state: PortState,
}

impl Member {
    /// Its configuration.
    pub fn config(&self) -> &PortConfig {
        &self.config
    }

    /// Its state.
    pub fn state(&self) -> PortState {
        self.state
    }
}

/// What a frame between two known stations needs of a port, in one word: flags in the lower half, and in the upper half the
/// length of the longest untagged frame that leaves by the port. By a port that does not forward, none leaves: 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortRules(u64);

/// It forwards, and learns the sources of frames.
const LEARNS: u64 = 1;
const HAIRPIN: u64 = 2;
const ISOLATED: u64 = 4;
const LONGEST: u32 = 32;

impl PortRules {
    fn of(Member { config, state }: &Member) -> PortRules {
        if *state != PortState::Forwarding {
            return PortRules::default();
        }
        let flag = |set, flag| if set { flag } else { 0 };
        let flags = flag(config.learning, LEARNS) | flag(config.hairpin, HAIRPIN) | flag(config.isolated, ISOLATED);
        let longest = u32::try_from(config.mtu.saturating_add(HEADER_LEN)).unwrap_or(u32::MAX);
        PortRules(u64::from(longest) << LONGEST | flags)
    }

    /// Whether the port forwards, and learns.
    #[inline]
    pub(crate) const fn learns(self) -> bool {
        self.0 & LEARNS != 0
    }

    /// Bytes of the longest frame, from its link header on, that comes by this port and leaves as it is by one with the rules
    /// `to`; 0: none does. `is_same`: it is the same port. On a bridge that distinguishes VLANs more rules apply, and a tagged
    /// frame may be longer by its tag.
    #[inline]
    pub(crate) const fn longest_to(self, to: PortRules, is_same: bool) -> usize {
        let may = self.0 & to.0 & ISOLATED == 0 && (!is_same || self.0 & HAIRPIN != 0);
        if may { (to.0 >> LONGEST) as usize } else { 0 }
    }
}

/// See the head of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    slots: Vec<Option<Member>>,
    /// By number of the port, made from its configuration and state.
    rules: Vec<PortRules>,
    vlans: Vlans,
    filtering: bool,
    /// Ports by which frames of a kind may be flooded; by [`FloodKind::index`].
    open: [PortSet; 3],
    isolated: PortSet,
}

impl Members {
    /// No members; tags are not looked at.
    pub fn new() -> Members {
        Members::default()
    }

    /// The member of this number.
    #[inline]
    pub fn get(&self, port: PortNumber) -> Option<&Member> {
        self.slots.get(port.index())?.as_ref()
    }

    /// The rules of a port; if there is no such port, no frame leaves by it.
    #[inline]
    pub(crate) fn rules(&self, port: PortNumber) -> PortRules {
        self.rules.get(port.index()).copied().unwrap_or_default()
    }

    /// All of them, by number.
    pub fn iter(&self) -> impl Iterator<Item = (PortNumber, &Member)> {
        self.slots.iter().zip(0..).filter_map(|(slot, number)| Some((PortNumber::new(number)?, slot.as_ref()?)))
    }

    /// The VLANs.
    pub fn vlans(&self) -> &Vlans {
        &self.vlans
    }

    /// Whether the bridge distinguishes VLANs.
    #[inline]
    pub fn is_filtering(&self) -> bool {
        self.filtering
    }

    /// Sets whether the bridge distinguishes VLANs. Addresses that were learned before are not found any more, and age out.
    pub fn set_filtering(&mut self, filtering: bool) {
        self.filtering = filtering;
    }

    /// Adds a port in this state, or changes its configuration if it exists. A new port is an untagged member of its PVID's
    /// VLAN.
    pub fn add(&mut self, port: PortNumber, config: PortConfig, state: PortState) {
        if self.slots.len() <= port.index() {
            self.slots.resize(port.index() + 1, None);
        }
        if let (Some(pvid), None) = (config.pvid, &self.slots[port.index()]) {
            self.vlans.join(pvid, port, true);
        }
        self.slots[port.index()] = Some(Member { config, state });
        self.derive(port);
    }

    /// Removes a port. `false`: there was none.
    pub fn remove(&mut self, port: PortNumber) -> bool {
        let was = self.slots.get_mut(port.index()).is_some_and(|slot| slot.take().is_some());
        self.vlans.leave_all(port);
        self.derive(port);
        was
    }

    /// Changes the configuration of a port. `false`: there is no such port.
    pub fn configure(&mut self, port: PortNumber, change: impl FnOnce(&mut PortConfig)) -> bool {
        self.change(port, |member| change(&mut member.config))
    }

    /// Changes the state of a port. `false`: there is no such port.
    pub fn set_state(&mut self, port: PortNumber, state: PortState) -> bool {
        self.change(port, |member| member.state = state)
    }

    fn change(&mut self, port: PortNumber, change: impl FnOnce(&mut Member)) -> bool {
        let Some(Some(member)) = self.slots.get_mut(port.index()) else { return false };
        change(member);
        self.derive(port);
        true
    }

    /// Makes a port a member of a VLAN, or changes whether its frames leave without a tag. `false`: there is no such
    /// port.
    pub fn join(&mut self, vid: Vid, port: PortNumber, untagged: bool) -> bool {
        let there = self.get(port).is_some();
        if there {
            self.vlans.join(vid, port, untagged);
        }
        there
    }

    /// Ends a membership. `false`: there was none.
    pub fn leave(&mut self, vid: Vid, port: PortNumber) -> bool {
        self.vlans.leave(vid, port)
    }

    /// Writes the port's rules and its bits in sets, which are made from its configuration and state.
    fn derive(&mut self, port: PortNumber) {
        self.rules.resize(self.slots.len(), PortRules::default());
        if let Some(rules) = self.rules.get_mut(port.index()) {
            *rules = self.slots[port.index()].as_ref().map(PortRules::of).unwrap_or_default();
        }
        let (mut open, mut isolated) = ([false; 3], false);
        if let Some(Member { config, state }) = self.get(port) {
            let forwards = *state == PortState::Forwarding;
            open = [config.broadcast_flood, config.multicast_flood, config.flood].map(|flood| flood && forwards);
            isolated = config.isolated;
        }
        self.open.iter_mut().zip(open).for_each(|(set, open)| set.set(port, open));
        self.isolated.set(port, isolated);
    }

    /// The VLAN of a frame that `port` received with this tag (IEEE 802.1Q section 6.9 and 8.6.2); `None` if the
    /// bridge does not distinguish VLANs.
    #[inline]
    pub(crate) fn classify(
        &self,
        port: PortNumber,
        member: &Member,
        tag: Option<VlanTag>,
    ) -> Result<Option<Vid>, DropReason> {
        if !self.filtering {
            return Ok(None);
        }
        let vid = match tag {
            Some(VlanTag { id: 0, .. }) | None => member.config.pvid.ok_or(DropReason::VlanIngress)?,
            Some(VlanTag { id, .. }) => Vid::new(id).ok_or(DropReason::VlanInvalid)?,
        };
        let vlan = self.vlans.get(vid).ok_or(DropReason::VlanIngress)?;
        let taken = !member.config.ingress_filtering || vlan.members.contains(port);
        if taken { Ok(Some(vid)) } else { Err(DropReason::VlanIngress) }
    }

    /// The VLAN of this identifier, if the bridge distinguishes VLANs.
    #[inline]
    pub(crate) fn vlan(&self, vid: Option<Vid>) -> Option<(Vid, &Vlan)> {
        let vid = vid?;
        Some((vid, self.vlans.get(vid)?))
    }

    /// The ports of word `at` by which a flooded frame of this kind leaves, if it arrived by `from`.
    #[inline]
    pub(crate) fn open_word(&self, at: usize, kind: FloodKind, vlan: Option<&Vlan>, from: PortNumber) -> u64 {
        let mut word = self.open[kind.index()].word(at);
        if let Some(vlan) = vlan {
            word &= vlan.members.word(at);
        }
        if self.isolated.contains(from) {
            word &= !self.isolated.word(at);
        }
        let own = from.index();
        if own / crate::port_set::WORD == at && !self.get(from).is_some_and(|member| member.config.hairpin) {
            word &= !(1 << (own % crate::port_set::WORD));
        }
        word
    }

    /// Words of the sets that flooding combines.
    #[inline]
    pub(crate) fn open_words(&self, kind: FloodKind) -> usize {
        self.open[kind.index()].words()
    }

    /// The change to the tag of a frame of this VLAN.
    #[inline]
    pub(crate) fn action(vlan: Option<(Vid, &Vlan)>, tag: Option<VlanTag>, port: PortNumber) -> TagAction {
        vlan.map_or(TagAction::Keep, |(vid, vlan)| vlan.action(vid, tag, port))
    }
}
