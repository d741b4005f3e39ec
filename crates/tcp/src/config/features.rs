//! Knobs of the handshake: SYN cookies, explicit congestion notification, Fast Open. Numbers are those of Linux's
//! sysctls.

/// When a listener answers SYNs without keeping state (`tcp_syncookies`, RFC 4987 section 3.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SynCookies {
    /// 0: never; a SYN that finds the queue full is dropped.
    Never,
    /// 1: while the queue of half-open connections is full.
    #[default]
    WhenFull,
    /// 2: always, to try them out.
    Always,
}

impl SynCookies {
    /// The knob's number, 0 to 2.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Never),
            1 => Some(Self::WhenFull),
            2 => Some(Self::Always),
            _ => None,
        }
    }
}

/// How explicit congestion notification is negotiated (`tcp_ecn`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ecn {
    /// 0: not at all.
    Off,
    /// 1: classic (RFC 3168), requested and accepted.
    Request,
    /// 2: classic, accepted when the peer requests it.
    #[default]
    Accept,
    /// 3: accurate (RFC 9768), requested and accepted, with classic as the fallback.
    Accurate,
    /// 4: accurate is accepted, classic is requested.
    AccurateAcceptRequest,
    /// 5: accurate is accepted, nothing is requested.
    AccurateAccept,
}

impl Ecn {
    /// The knob's number, 0 to 5.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Off),
            1 => Some(Self::Request),
            2 => Some(Self::Accept),
            3 => Some(Self::Accurate),
            4 => Some(Self::AccurateAcceptRequest),
            5 => Some(Self::AccurateAccept),
            _ => None,
        }
    }

    /// Whether an active open requests ECN of any kind.
    pub const fn requests(self) -> bool {
        matches!(self, Self::Request | Self::Accurate | Self::AccurateAcceptRequest)
    }

    /// Whether an active open requests accurate ECN.
    pub const fn requests_accurate(self) -> bool {
        matches!(self, Self::Accurate)
    }

    /// Whether a request for ECN of any kind is granted.
    pub const fn accepts(self) -> bool {
        !matches!(self, Self::Off)
    }

    /// Whether a request for accurate ECN is granted.
    pub const fn accepts_accurate(self) -> bool {
        matches!(self, Self::Accurate | Self::AccurateAcceptRequest | Self::AccurateAccept)
    }
}

/// When the option with the counters of accurate ECN is sent (`tcp_ecn_option`, RFC 9768 section 3.2.3.3). Unless it is
/// never sent, it is repeated, on data too, when it was not sent for a part of a round trip
/// ([`Config::ecn_option_beacon`](crate::Config::ecn_option_beacon)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EcnOption {
    /// 0: never; only the three bits of the header are sent.
    Never,
    /// 1: when a counter has changed.
    Sparing,
    /// 2: on every acknowledgement without data that has room for it.
    #[default]
    Always,
}

impl EcnOption {
    /// The knob's number, 0 to 2.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Never),
            1 => Some(Self::Sparing),
            2 => Some(Self::Always),
            _ => None,
        }
    }
}

/// Fast Open (`tcp_fastopen`, RFC 7413), a set of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FastOpenMode(pub u32);

impl FastOpenMode {
    /// Active opens with data use it.
    pub const CLIENT: u32 = 0x1;
    /// Listeners that ask for it use it.
    pub const SERVER: u32 = 0x2;
    /// Active opens send data in the SYN even without a cookie.
    pub const CLIENT_WITHOUT_COOKIE: u32 = 0x4;
    /// Listeners take data in a SYN that has no cookie.
    pub const SERVER_WITHOUT_COOKIE: u32 = 0x200;
    /// All listeners use it, whether they request it or not.
    pub const ALL_LISTENERS: u32 = 0x400;

    /// Whether all of these bits are set.
    pub const fn has(self, bits: u32) -> bool {
        self.0 & bits == bits
    }
}

impl Default for FastOpenMode {
    fn default() -> Self {
        FastOpenMode(Self::CLIENT)
    }
}
