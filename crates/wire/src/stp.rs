//! Bridge protocol data units of the spanning tree protocols STP and RSTP (IEEE 802.1D-2004 clause 9), in IEEE 802.3
//! frames with an LLC header (802.2: source and destination service access point 0x42, unnumbered information).
//!
//! A BPDU of a later protocol (MSTP) is read as the RST BPDU that it begins with, as section 9.3.4 requires.

use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ParseError;
use crate::ethernet::{self, MacAddr};

/// The bridge group address, to which BPDUs are sent (table 7-10).
pub const GROUP: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0x00, 0x00, 0x00]);

const LLC: [u8; 3] = [0x42, 0x42, 0x03];
const CONFIG: u8 = 0x00;
const RAPID: u8 = 0x02;
const NOTIFICATION: u8 = 0x80;
const HEAD_LEN: usize = 4;
/// Bytes of a configuration BPDU; an RST BPDU has one more.
const CONFIG_LEN: usize = 35;

/// The identifier of a bridge: its priority in the first 16 bits, its address in the other 48 (section 9.2.5). The
/// smaller one is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BridgeId(pub u64);

impl BridgeId {
    /// Of this priority and address.
    pub const fn new(priority: u16, address: MacAddr) -> BridgeId {
        let [a, b, c, d, e, f] = address.0;
        BridgeId((priority as u64) << 48 | u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }

    /// The address.
    pub const fn address(self) -> MacAddr {
        let [_, _, a, b, c, d, e, f] = self.0.to_be_bytes();
        MacAddr([a, b, c, d, e, f])
    }
}

/// The spanning tree priority vector (section 17.5), without the receiving port. The smaller one is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PriorityVector {
    /// The bridge taken to be the root.
    pub root: BridgeId,
    /// Cost of the path to it.
    pub cost: u32,
    /// The bridge that transmits.
    pub bridge: BridgeId,
    /// The port that it transmits by: its priority in the first 4 bits, its number in the other 12.
    pub port: u16,
}

/// The timer values that a BPDU carries, each in 1/256 s (section 9.2.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Times {
    /// Message Age: the time since the root sent it.
    pub message_age: u16,
    /// Max Age: the age at which it expires.
    pub max_age: u16,
    /// Hello Time: the interval until the next.
    pub hello: u16,
    /// Forward Delay: how long a port is in each state on its way to Forwarding, without an agreement.
    pub forward_delay: u16,
}

/// The role of the port that transmitted an RST BPDU (section 9.2.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PortRole {
    /// 0; read as Designated.
    Unknown,
    /// 1
    AlternateOrBackup,
    /// 2
    Root,
    /// 3
    Designated,
}

/// A configuration BPDU of STP (section 9.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConfigBpdu {
    /// Topology Change.
    pub topology_change: bool,
    /// Topology Change Acknowledgement.
    pub acknowledgement: bool,
    /// The transmitting bridge, and its information about the root.
    pub priority: PriorityVector,
    /// Timer values.
    pub times: Times,
}

/// An RST BPDU of RSTP (section 9.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rapid {
    /// Topology Change.
    pub topology_change: bool,
    /// Proposal: the sender wants to forward at once.
    pub proposal: bool,
    /// The sender's port role.
    pub role: PortRole,
    /// The sender's port learns.
    pub learning: bool,
    /// The sender's port forwards.
    pub forwarding: bool,
    /// Agreement: the receiver may forward at once.
    pub agreement: bool,
    /// Topology Change Acknowledgement. Never set by a bridge that follows the standard.
    pub acknowledgement: bool,
    /// The transmitting bridge, and its information about the root.
    pub priority: PriorityVector,
    /// Timer values.
    pub times: Times,
}

/// A BPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bpdu {
    /// Topology change notification of STP (section 9.3.2).
    Notification,
    /// Configuration of STP.
    Config(ConfigBpdu),
    /// Of RSTP.
    Rapid(Rapid),
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct HeadView {
    protocol: U16,
    version: u8,
    kind: u8,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct BodyView {
    flags: u8,
    root: U64,
    cost: U32,
    bridge: U64,
    port: U16,
    message_age: U16,
    max_age: U16,
    hello: U16,
    forward_delay: U16,
}

const _: () = assert!(size_of::<HeadView>() == HEAD_LEN && size_of::<BodyView>() == CONFIG_LEN - HEAD_LEN);

impl BodyView {
    fn new(flags: u8, priority: &PriorityVector, times: &Times) -> BodyView {
        BodyView {
            flags,
            root: U64::new(priority.root.0),
            cost: U32::new(priority.cost),
            bridge: U64::new(priority.bridge.0),
            port: U16::new(priority.port),
            message_age: U16::new(times.message_age),
            max_age: U16::new(times.max_age),
            hello: U16::new(times.hello),
            forward_delay: U16::new(times.forward_delay),
        }
    }

    fn priority(&self) -> PriorityVector {
        let (root, bridge) = (BridgeId(self.root.get()), BridgeId(self.bridge.get()));
        PriorityVector { root, cost: self.cost.get(), bridge, port: self.port.get() }
    }

    fn times(&self) -> Times {
        let (message_age, max_age) = (self.message_age.get(), self.max_age.get());
        Times { message_age, max_age, hello: self.hello.get(), forward_delay: self.forward_delay.get() }
    }
}

const TC: u8 = 0x01;
const PROPOSAL: u8 = 0x02;
const LEARNING: u8 = 0x10;
const FORWARDING: u8 = 0x20;
const AGREEMENT: u8 = 0x40;
const TC_ACK: u8 = 0x80;

impl Bpdu {
    /// Reads a frame, from its Ethernet header on, as section 9.3.4 requires.
    ///
    /// # Errors
    /// [`ParseError::Unsupported`]: not an LLC frame of spanning tree; [`ParseError::Truncated`]: the frame or the BPDU
    /// ends too early; [`ParseError::BadField`]: a configuration BPDU that has reached its maximum age.
    pub fn of_frame(frame: &[u8]) -> Result<Bpdu, ParseError> {
        let (header, at) = ethernet::parse(frame)?;
        let length = usize::from(u16::from(header.ethertype));
        if at != ethernet::HEADER_LEN || length >= 0x0600 {
            return Err(ParseError::Unsupported);
        }
        let payload = frame.get(at..).and_then(|payload| payload.get(..length)).ok_or(ParseError::Truncated)?;
        let bytes = payload.strip_prefix(&LLC).ok_or(ParseError::Unsupported)?;
        let (head, rest) = HeadView::read_from_prefix(bytes).map_err(|_| ParseError::Truncated)?;
        match (head.protocol.get(), head.version, head.kind) {
            (0, _, NOTIFICATION) => Ok(Bpdu::Notification),
            (0, _, CONFIG) => config(rest),
            (0, 2.., RAPID) => rapid(rest),
            _ => Err(ParseError::Unsupported),
        }
    }

    /// Writes the frame in which a port with the address `from` transmits it, padded to the least length.
    pub fn emit(&self, from: MacAddr) -> [u8; ethernet::MIN_FRAME_LEN] {
        let mut frame = [0; ethernet::MIN_FRAME_LEN];
        let (version, kind, body) = match self {
            Bpdu::Notification => (0, NOTIFICATION, None),
            Bpdu::Config(config) => (0, CONFIG, Some(config.body())),
            Bpdu::Rapid(rapid) => (2, RAPID, Some(rapid.body())),
        };
        let len = match kind {
            NOTIFICATION => HEAD_LEN,
            CONFIG => CONFIG_LEN,
            // Version 1 Length, which is 0, is at the end.
            _ => CONFIG_LEN + 1,
        };
        let header = ethernet::Header { dst: GROUP, src: from, ethertype: ((LLC.len() + len) as u16).into() };
        let mut bytes = [0; ethernet::HEADER_LEN];
        header.emit(&mut bytes);
        let head = HeadView { protocol: U16::new(0), version, kind };
        let parts = bytes.iter().chain(&LLC).chain(head.as_bytes());
        let body = body.as_ref().map_or(&[][..], |body| body.as_bytes());
        frame.iter_mut().zip(parts.chain(body)).for_each(|(to, byte)| *to = *byte);
        frame
    }
}

fn config(rest: &[u8]) -> Result<Bpdu, ParseError> {
    let (body, _) = BodyView::read_from_prefix(rest).map_err(|_| ParseError::Truncated)?;
    if body.message_age.get() >= body.max_age.get() {
        return Err(ParseError::BadField);
    }
    let (topology_change, acknowledgement) = (body.flags & TC != 0, body.flags & TC_ACK != 0);
    Ok(Bpdu::Config(ConfigBpdu { topology_change, acknowledgement, priority: body.priority(), times: body.times() }))
}

fn rapid(rest: &[u8]) -> Result<Bpdu, ParseError> {
    let (body, rest) = BodyView::read_from_prefix(rest).map_err(|_| ParseError::Truncated)?;
    if rest.is_empty() {
        return Err(ParseError::Truncated);
    }
    let has = |bit: u8| body.flags & bit != 0;
    let role = match body.flags >> 2 & 3 {
        0 => PortRole::Unknown,
        1 => PortRole::AlternateOrBackup,
        2 => PortRole::Root,
        _ => PortRole::Designated,
    };
    Ok(Bpdu::Rapid(Rapid {
        topology_change: has(TC),
        proposal: has(PROPOSAL),
        role,
        learning: has(LEARNING),
        forwarding: has(FORWARDING),
        agreement: has(AGREEMENT),
        acknowledgement: has(TC_ACK),
        priority: body.priority(),
        times: body.times(),
    }))
}

fn bit(set: bool, bit: u8) -> u8 {
    if set { bit } else { 0 }
}

impl ConfigBpdu {
    fn body(&self) -> BodyView {
        let flags = bit(self.topology_change, TC) | bit(self.acknowledgement, TC_ACK);
        BodyView::new(flags, &self.priority, &self.times)
    }
}

impl Rapid {
    fn body(&self) -> BodyView {
        let flags = bit(self.topology_change, TC)
            | bit(self.proposal, PROPOSAL)
            | (self.role as u8) << 2
            | bit(self.learning, LEARNING)
            | bit(self.forwarding, FORWARDING)
            | bit(self.agreement, AGREEMENT)
            | bit(self.acknowledgement, TC_ACK);
        BodyView::new(flags, &self.priority, &self.times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIORITY: PriorityVector = PriorityVector {
        root: BridgeId(0x1000_0200_0000_0001),
        cost: 20_004,
        bridge: BridgeId(0x8000_0200_0000_0002),
        port: 0x8003,
    };
    const TIMES: Times = Times { message_age: 256, max_age: 20 * 256, hello: 512, forward_delay: 15 * 256 };

    /// Tables 9-1 and 9-3, byte by byte.
    #[test]
    fn an_rst_bpdu_is_laid_out_as_in_the_standard() {
        let rapid = Rapid {
            topology_change: true,
            proposal: false,
            role: PortRole::Designated,
            learning: true,
            forwarding: true,
            agreement: true,
            acknowledgement: false,
            priority: PRIORITY,
            times: TIMES,
        };
        let frame = Bpdu::Rapid(rapid).emit(MacAddr([2, 0, 0, 0, 0, 2]));
        #[rustfmt::skip]
        let expected = [
            0x01, 0x80, 0xc2, 0, 0, 0, 2, 0, 0, 0, 0, 2, 0, 39, 0x42, 0x42, 3,
            0, 0, 2, 2, 0x7d, 0x10, 0, 2, 0, 0, 0, 0, 1, 0, 0, 0x4e, 0x24, 0x80, 0, 2, 0, 0, 0, 0, 2, 0x80, 3,
            1, 0, 20, 0, 2, 0, 15, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(frame, expected);
        assert_eq!(Bpdu::of_frame(&frame), Ok(Bpdu::Rapid(rapid)));
        // MSTP's longer BPDU of version 3 is read as the RSTP BPDU with which it begins.
        let mut later = frame;
        (later[19], later[13]) = (3, 43);
        assert_eq!(Bpdu::of_frame(&later), Ok(Bpdu::Rapid(rapid)));
    }

    #[test]
    fn a_config_bpdu_as_old_as_max_age_is_refused() {
        let mut config = ConfigBpdu { topology_change: true, acknowledgement: true, priority: PRIORITY, times: TIMES };
        let frame = Bpdu::Config(config).emit(MacAddr([2, 0, 0, 0, 0, 2]));
        assert_eq!(frame[17..22], [0, 0, 0, 0, 0x81]);
        assert_eq!(Bpdu::of_frame(&frame), Ok(Bpdu::Config(config)));
        config.times.message_age = config.times.max_age;
        assert_eq!(Bpdu::of_frame(&Bpdu::Config(config).emit(GROUP)), Err(ParseError::BadField));
    }

    #[test]
    fn every_length_is_parsed_or_refused() {
        let from = MacAddr([2, 0, 0, 0, 0, 2]);
        assert_eq!(Bpdu::of_frame(&Bpdu::Notification.emit(from)), Ok(Bpdu::Notification));
        let config = ConfigBpdu { topology_change: false, acknowledgement: false, priority: PRIORITY, times: TIMES };
        let frame = Bpdu::Config(config).emit(from);
        for len in 0..frame.len() {
            assert_eq!(Bpdu::of_frame(&frame[..len]).is_ok(), len >= 14 + 3 + 35, "{len} bytes");
        }
        for length in 0..39 {
            let mut frame = frame;
            frame[13] = length;
            assert_eq!(Bpdu::of_frame(&frame).is_ok(), length == 38, "length {length}");
        }
    }
}
