//! The bodies and options of neighbour discovery (RFC 4861 sections 4.1 to 4.6).
//!
//! Called by the parent without the eight bytes of the ICMPv6 header. Options of unknown type are skipped; if an option
//! that may appear once is repeated, the last one counts.

use core::fmt;
use core::net::Ipv6Addr;

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ParseError;
use crate::ethernet::MacAddr;

use super::{Message, NEIGHBOUR_ADVERT, NEIGHBOUR_SOLICIT, ROUTER_ADVERT, ROUTER_SOLICIT};

/// Most prefixes kept of one router advertisement; further ones are ignored.
pub const MAX_PREFIXES: usize = 4;

const SOURCE_LINK_LAYER: u8 = 1;
const TARGET_LINK_LAYER: u8 = 2;
const PREFIX_INFORMATION: u8 = 3;
const MTU: u8 = 5;

const MANAGED: u32 = 1 << 23;
const OTHER_CONFIG: u32 = 1 << 22;
const ON_LINK: u8 = 0x80;
const AUTONOMOUS: u8 = 0x40;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct LinkLayerView {
    kind: u8,
    len8: u8,
    mac: [u8; 6],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct MtuView {
    kind: u8,
    len8: u8,
    reserved: U16,
    mtu: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct PrefixView {
    kind: u8,
    len8: u8,
    prefix_len: u8,
    flags: u8,
    valid_lifetime: U32,
    preferred_lifetime: U32,
    reserved: U32,
    prefix: [u8; 16],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct AdvertView {
    reachable_time: U32,
    retrans_timer: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RedirectView {
    target: [u8; 16],
    destination: [u8; 16],
}

/// A prefix of the link (RFC 4861 section 4.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PrefixInfo {
    /// The prefix; its bits beyond `prefix_len` are to be ignored.
    pub prefix: Ipv6Addr,
    /// Length of the prefix in bits, 0 to 128.
    pub prefix_len: u8,
    /// L: addresses in it are neighbours.
    pub on_link: bool,
    /// A: it may be used to make addresses (RFC 4862).
    pub autonomous: bool,
    /// How long it is valid, in seconds; all ones is for ever.
    pub valid_lifetime: u32,
    /// How long addresses made from it are preferred, in seconds; all ones is for ever.
    pub preferred_lifetime: u32,
}

impl PrefixInfo {
    const NONE: Self = Self {
        prefix: Ipv6Addr::UNSPECIFIED,
        prefix_len: 0,
        on_link: false,
        autonomous: false,
        valid_lifetime: 0,
        preferred_lifetime: 0,
    };
}

/// At most [`MAX_PREFIXES`] prefixes, in the order of the options.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Prefixes {
    // Entries from `len` on stay `NONE`, so that `==` compares the prefixes.
    entries: [PrefixInfo; MAX_PREFIXES],
    len: u8,
}

impl Prefixes {
    /// No prefix.
    pub const EMPTY: Self = Self { entries: [PrefixInfo::NONE; MAX_PREFIXES], len: 0 };

    /// Adds a prefix behind the others; `false` if there was no room.
    pub fn push(&mut self, prefix: PrefixInfo) -> bool {
        match self.entries.get_mut(usize::from(self.len)) {
            Some(free) => {
                *free = prefix;
                self.len += 1;
                true
            }
            None => false,
        }
    }

    /// The prefixes in the order of the options.
    pub fn as_slice(&self) -> &[PrefixInfo] {
        self.entries.get(..usize::from(self.len)).unwrap_or_default()
    }
}

impl Default for Prefixes {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl fmt::Debug for Prefixes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

/// A router advertisement (RFC 4861 section 4.2). Zero in a field means unspecified by the router.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RouterAdvert {
    /// Hop limit to send with.
    pub hop_limit: u8,
    /// M: addresses are given out by DHCPv6.
    pub managed: bool,
    /// O: other configuration is available by DHCPv6.
    pub other_config: bool,
    /// How long the sender is a default router, in seconds; zero means that it is none.
    pub router_lifetime: u16,
    /// How long a neighbour counts as reachable after a confirmation, in milliseconds.
    pub reachable_time: u32,
    /// Time between retransmitted solicitations, in milliseconds.
    pub retrans_timer: u32,
    /// Hardware address of the router.
    pub source: Option<MacAddr>,
    /// MTU of the link, in bytes.
    pub mtu: Option<u32>,
    /// Prefixes of the link.
    pub prefixes: Prefixes,
}

impl RouterAdvert {
    /// The second word of the message: hop limit, flags, lifetime.
    pub(super) fn word(&self) -> u32 {
        let mut word = u32::from(self.hop_limit) << 24 | u32::from(self.router_lifetime);
        if self.managed {
            word |= MANAGED;
        }
        if self.other_config {
            word |= OTHER_CONFIG;
        }
        word
    }
}

/// The options of one message.
#[derive(Default)]
struct FoundOptions {
    source: Option<MacAddr>,
    target: Option<MacAddr>,
    mtu: Option<u32>,
    prefixes: Prefixes,
}

/// Reads the body of a message of type `kind` whose second word is `word`.
pub(super) fn parse(kind: u8, word: u32, body: &[u8], src: Ipv6Addr, dst: Ipv6Addr) -> Result<Message, ParseError> {
    match kind {
        ROUTER_SOLICIT => {
            let source = options(body)?.source;
            require(source.is_none() || !src.is_unspecified())?;
            Ok(Message::RouterSolicit { source })
        }
        ROUTER_ADVERT => parse_router_advert(word, body, src),
        NEIGHBOUR_SOLICIT => parse_neighbour_solicit(body, src, dst),
        NEIGHBOUR_ADVERT => parse_neighbour_advert(word, body, dst),
        _ => parse_redirect(body, src),
    }
}

/// A validity rule: the message is dropped unless it holds.
fn require(rule: bool) -> Result<(), ParseError> {
    if rule { Ok(()) } else { Err(ParseError::BadField) }
}

/// RFC 4861 section 6.1.2.
fn parse_router_advert(word: u32, body: &[u8], src: Ipv6Addr) -> Result<Message, ParseError> {
    let (view, rest) = AdvertView::ref_from_prefix(body).map_err(|_| ParseError::Truncated)?;
    let found = options(rest)?;
    require(src.is_unicast_link_local())?;
    Ok(Message::RouterAdvert(RouterAdvert {
        hop_limit: (word >> 24) as u8,
        managed: word & MANAGED != 0,
        other_config: word & OTHER_CONFIG != 0,
        router_lifetime: word as u16,
        reachable_time: view.reachable_time.get(),
        retrans_timer: view.retrans_timer.get(),
        source: found.source,
        mtu: found.mtu,
        prefixes: found.prefixes,
    }))
}

/// RFC 4861 section 7.1.1: with an unspecified source it is duplicate address detection, sent to the solicited-node
/// group and without a hardware address.
fn parse_neighbour_solicit(body: &[u8], src: Ipv6Addr, dst: Ipv6Addr) -> Result<Message, ParseError> {
    let (target, found) = target_and_options(body)?;
    if src.is_unspecified() {
        require(found.source.is_none() && is_solicited_node(dst))?;
    }
    Ok(Message::NeighbourSolicit { target, source: found.source })
}

/// RFC 4861 section 7.1.2: a multicast advertisement must not have the solicited flag.
fn parse_neighbour_advert(word: u32, body: &[u8], dst: Ipv6Addr) -> Result<Message, ParseError> {
    let (target, found) = target_and_options(body)?;
    let solicited = word & 1 << 30 != 0;
    require(!(solicited && dst.is_multicast()))?;
    Ok(Message::NeighbourAdvert {
        target,
        target_mac: found.target,
        router: word & 1 << 31 != 0,
        solicited,
        override_flag: word & 1 << 29 != 0,
    })
}

/// RFC 4861 section 8.1.
fn parse_redirect(body: &[u8], src: Ipv6Addr) -> Result<Message, ParseError> {
    let (view, rest) = RedirectView::ref_from_prefix(body).map_err(|_| ParseError::Truncated)?;
    let found = options(rest)?;
    let (target, destination) = (Ipv6Addr::from(view.target), Ipv6Addr::from(view.destination));
    require(src.is_unicast_link_local() && !destination.is_multicast())?;
    require(target.is_unicast_link_local() || target == destination)?;
    Ok(Message::Redirect { target, destination, target_mac: found.target })
}

fn target_and_options(body: &[u8]) -> Result<(Ipv6Addr, FoundOptions), ParseError> {
    let (target, rest) = body.split_first_chunk::<16>().ok_or(ParseError::Truncated)?;
    let target = Ipv6Addr::from(*target);
    let found = options(rest)?;
    require(!target.is_multicast())?;
    Ok((target, found))
}

fn is_solicited_node(addr: Ipv6Addr) -> bool {
    let [.., a, b] = addr.segments();
    // The group of an address with the same last 24 bits is the group itself.
    addr == crate::ipv6::solicited_node(Ipv6Addr::new(0, 0, 0, 0, 0, 0, a, b))
}

/// Walks the options. A length of zero, or one that overruns, makes the message invalid (RFC 4861 section 4.6).
fn options(mut rest: &[u8]) -> Result<FoundOptions, ParseError> {
    let mut found = FoundOptions::default();
    while let &[kind, len8, ..] = rest {
        if len8 == 0 {
            return Err(ParseError::BadOption);
        }
        let (option, after) = rest.split_at_checked(8 * usize::from(len8)).ok_or(ParseError::BadOption)?;
        take(&mut found, kind, option);
        rest = after;
    }
    if rest.is_empty() { Ok(found) } else { Err(ParseError::BadOption) }
}

/// Keeps an option of a known type and the right length.
fn take(found: &mut FoundOptions, kind: u8, option: &[u8]) {
    match kind {
        SOURCE_LINK_LAYER => found.source = link_layer(option).or(found.source),
        TARGET_LINK_LAYER => found.target = link_layer(option).or(found.target),
        MTU => {
            if let Ok(view) = MtuView::ref_from_bytes(option) {
                found.mtu = Some(view.mtu.get());
            }
        }
        PREFIX_INFORMATION => {
            if let Ok(view) = PrefixView::ref_from_bytes(option)
                && view.prefix_len <= 128
            {
                found.prefixes.push(PrefixInfo {
                    prefix: view.prefix.into(),
                    prefix_len: view.prefix_len,
                    on_link: view.flags & ON_LINK != 0,
                    autonomous: view.flags & AUTONOMOUS != 0,
                    valid_lifetime: view.valid_lifetime.get(),
                    preferred_lifetime: view.preferred_lifetime.get(),
                });
            }
        }
        _ => {}
    }
}

fn link_layer(option: &[u8]) -> Option<MacAddr> {
    LinkLayerView::ref_from_bytes(option).ok().map(|view| MacAddr(view.mac))
}

/// Bytes behind the eight of the ICMPv6 header; zero for messages that are not neighbour discovery.
pub(super) fn emitted_len(message: &Message) -> usize {
    let link_layer = |mac: &Option<MacAddr>| if mac.is_some() { 8 } else { 0 };
    match message {
        Message::RouterSolicit { source } => link_layer(source),
        Message::RouterAdvert(advert) => {
            let mtu = if advert.mtu.is_some() { 8 } else { 0 };
            8 + link_layer(&advert.source) + mtu + 32 * advert.prefixes.as_slice().len()
        }
        Message::NeighbourSolicit { source, .. } => 16 + link_layer(source),
        Message::NeighbourAdvert { target_mac, .. } => 16 + link_layer(target_mac),
        Message::Redirect { target_mac, .. } => 32 + link_layer(target_mac),
        _ => 0,
    }
}

/// Writes the body into `out`, of exactly [`emitted_len`] bytes.
pub(super) fn emit(message: &Message, out: &mut [u8]) {
    let mut rest = out;
    match message {
        Message::RouterSolicit { source } => put_link_layer(&mut rest, SOURCE_LINK_LAYER, *source),
        Message::RouterAdvert(advert) => put_router_advert(&mut rest, advert),
        Message::NeighbourSolicit { target, source } => {
            put(&mut rest, &target.octets());
            put_link_layer(&mut rest, SOURCE_LINK_LAYER, *source);
        }
        Message::NeighbourAdvert { target, target_mac, .. } => {
            put(&mut rest, &target.octets());
            put_link_layer(&mut rest, TARGET_LINK_LAYER, *target_mac);
        }
        Message::Redirect { target, destination, target_mac } => {
            put(&mut rest, &RedirectView { target: target.octets(), destination: destination.octets() });
            put_link_layer(&mut rest, TARGET_LINK_LAYER, *target_mac);
        }
        _ => {}
    }
}

fn put_router_advert(rest: &mut &mut [u8], advert: &RouterAdvert) {
    put(
        rest,
        &AdvertView { reachable_time: U32::new(advert.reachable_time), retrans_timer: U32::new(advert.retrans_timer) },
    );
    put_link_layer(rest, SOURCE_LINK_LAYER, advert.source);
    if let Some(mtu) = advert.mtu {
        put(rest, &MtuView { kind: MTU, len8: 1, reserved: U16::ZERO, mtu: U32::new(mtu) });
    }
    for prefix in advert.prefixes.as_slice() {
        let on_link = if prefix.on_link { ON_LINK } else { 0 };
        let autonomous = if prefix.autonomous { AUTONOMOUS } else { 0 };
        put(
            rest,
            &PrefixView {
                kind: PREFIX_INFORMATION,
                len8: 4,
                prefix_len: prefix.prefix_len,
                flags: on_link | autonomous,
                valid_lifetime: U32::new(prefix.valid_lifetime),
                preferred_lifetime: U32::new(prefix.preferred_lifetime),
                reserved: U32::ZERO,
                prefix: prefix.prefix.octets(),
            },
        );
    }
}

fn put_link_layer(rest: &mut &mut [u8], kind: u8, mac: Option<MacAddr>) {
    if let Some(MacAddr(mac)) = mac {
        put(rest, &LinkLayerView { kind, len8: 1, mac });
    }
}

/// Writes `view` at the front of `rest` and moves on. The slice was sized by `emitted_len`, so nothing is cut off.
fn put(rest: &mut &mut [u8], view: &(impl IntoBytes + Immutable)) {
    let all = core::mem::take(rest);
    if view.write_to_prefix(all).is_ok() {
        *rest = all.get_mut(size_of_val(view)..).unwrap_or_default();
    }
}
