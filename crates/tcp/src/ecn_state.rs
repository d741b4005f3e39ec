//! The ECN state of a connection: the ECN field, the bits that its headers carry, and its counts of marks. The rules
//! are in [`crate::ecn`].

use observe::Time;
use wire::tcp::TcpFlags;

/// The ECN field of the IP header (RFC 3168 section 5).
pub(crate) const NOT_ECT: u8 = 0;
/// ECT(1).
pub(crate) const ECT_1: u8 = 1;
/// ECT(0): the codepoint of our data.
pub(crate) const ECT_0: u8 = 2;
/// Congestion experienced.
pub(crate) const CE: u8 = 3;

/// Initial value of the count of marks (RFC 9768 section 3.2.1): zero would look like a path that clears the bits.
pub(crate) const FIRST_COUNT: u32 = 5;
/// The same for bytes that arrived marked ECT(0) or ECT(1).
pub(crate) const FIRST_BYTES: u32 = 1;
/// The ECN bits of our headers, in one byte: those of our SYN, later those of every segment with ACK, and those that
/// new data adds. The bits have the positions of the TCP header and of the ECN field of the IP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks(pub(crate) u8);

impl Marks {
    /// CWR on the next new data: the congestion window was cut (RFC 3168 section 6.1.2).
    pub(crate) const REDUCED: u8 = 4;
    /// The bits count marks (RFC 9768).
    pub(crate) const COUNT: u8 = 8;
    /// The next new data carries the option.
    pub(crate) const OPTION: u8 = 0x10;
    /// Segments without data are capable of ECN, too, as long as data is.
    pub(crate) const PURE: u8 = 0x20;
    const ECHO: u8 = TcpFlags::ECE.0 as u8 | TcpFlags::CWR.0 as u8 | 1;

    /// The bits of every segment with ACK, or of the SYN before there is one.
    #[inline]
    pub(crate) fn echo(self) -> TcpFlags {
        let bits = u16::from(self.0);
        TcpFlags(bits & 0xc0 | (bits & 1) << 8)
    }

    pub(crate) fn set_echo(&mut self, flags: TcpFlags) {
        self.0 = self.0 & !Self::ECHO | (flags.0 & 0xc0) as u8 | (flags.0 >> 8 & 1) as u8;
    }

    /// ECN field of new data.
    #[inline]
    pub(crate) fn class(self) -> u8 {
        self.0 & ECT_0
    }

    /// ECN field of a segment without data.
    #[inline]
    pub(crate) fn pure_class(self) -> u8 {
        if self.0 & Self::PURE == 0 { NOT_ECT } else { self.class() }
    }

    /// Whether no header carries an ECN bit or option: all that may be set is that data is capable of ECN.
    #[inline]
    pub(crate) fn are_quiet(self) -> bool {
        self.0 & (Self::ECHO | Self::REDUCED | Self::COUNT | Self::OPTION) == 0
    }

    /// Whether the next new data must have the option of accurate ECN.
    pub(crate) fn needs_option(self) -> bool {
        self.0 & Self::OPTION != 0
    }

    pub(crate) fn set_capable(&mut self, capable: bool) {
        self.0 = self.0 & !ECT_0 | if capable { ECT_0 } else { NOT_ECT };
    }

    /// Whether a device may cut super-segments: not if their pieces would all carry bits that only one may have, or
    /// lose them.
    #[inline]
    pub(crate) fn are_plain(self) -> bool {
        self.0 & (Self::REDUCED | Self::COUNT) == 0
    }

    /// Whether the next new data may carry an ECN signal beyond that of all data: with accurate ECN, any may have the
    /// option.
    #[inline]
    pub(crate) fn may_have_signal(self) -> bool {
        self.0 & (Self::REDUCED | Self::OPTION | Self::COUNT) != 0
    }

    /// Whether the next new data must have CWR.
    pub(crate) fn needs_cwr(self) -> bool {
        self.0 & Self::REDUCED != 0
    }

    /// New data has left.
    pub(crate) fn cwr_sent(&mut self) {
        self.0 &= !Self::REDUCED;
    }
}

/// The mode of ECN of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EcnMode {
    /// Nothing.
    #[default]
    Off,
    /// RFC 3168.
    Classic,
    /// RFC 9768.
    Accurate,
}

/// The state of a connection with ECN; in a box, since few have it.
#[derive(Debug)]
pub(crate) struct EcnState {
    pub(crate) mode: EcnMode,
    /// Data may be sent as capable of ECN.
    pub(crate) capable: bool,
    /// The acknowledgement that completes the handshake (as a server), or the first segment after it, is still awaited.
    pub(crate) first: bool,
    /// The peer's option was seen, so that ours will arrive.
    pub(crate) option: bool,
    /// Something was counted since the option left last.
    pub(crate) counters_changed: bool,
    /// When the option left last.
    pub(crate) option_sent: Option<Time>,
    /// A segment of the peer was capable of ECN, or marked.
    pub(crate) seen: bool,
    /// The peer's reports of marks are ignored: the path clears the bits (RFC 9768 sections 3.2.2.1 and 3.2.2.4).
    pub(crate) reports_ignored: bool,
    /// Segments that an acknowledgement covers, in sixteenths: a moving average, 0 before the first.
    pub(crate) usual_ack: u32,
    /// Segments that we had sent when the last mark arrived, and how many marks have arrived since the last of them.
    pub(crate) unanswered: (u32, u32),
    /// No further cut until this many bytes of data are acknowledged in all. Not a sequence number: those wrap after
    /// 2^32 bytes, possibly before any segment is processed here.
    pub(crate) cut_until: Option<u64>,
    /// Segments of the peer that arrived marked (r.cep).
    pub(crate) marks_in: u32,
    /// Bytes of data that arrived with ECT(0), marked, with ECT(1) (r.e0b, r.ceb, r.e1b).
    pub(crate) bytes_in: [u32; 3],
    /// Our segments that arrived marked, as far as reported (s.cep).
    pub(crate) marks_out: u32,
    /// The peer's counts of bytes that arrived there with ECT(0), marked, with ECT(1) (s.e0b, s.ceb, s.e1b).
    pub(crate) bytes_out: [u32; 3],
}

impl EcnState {
    pub(crate) fn new(mode: EcnMode) -> EcnState {
        EcnState {
            mode,
            capable: true,
            first: true,
            option: false,
            counters_changed: true,
            option_sent: None,
            seen: false,
            reports_ignored: false,
            usual_ack: 0,
            unanswered: (0, 0),
            cut_until: None,
            marks_in: FIRST_COUNT,
            bytes_in: [FIRST_BYTES, 0, FIRST_BYTES],
            marks_out: FIRST_COUNT,
            bytes_out: [FIRST_BYTES, 0, FIRST_BYTES],
        }
    }

    /// Whether the window was cut, and none of the first `acked` bytes of data was sent later.
    pub(crate) fn reduced(&self, acked: u64) -> bool {
        self.cut_until.is_some_and(|until| acked <= until)
    }

    /// Our segments that arrived marked.
    pub(crate) fn marked(&self) -> u32 {
        self.marks_out.wrapping_sub(FIRST_COUNT)
    }

    /// For status reports.
    pub(crate) fn counts(&self) -> EcnCounts {
        let counted = |[ect0, ce, ect1]: [u32; 3]| {
            [ect0.wrapping_sub(FIRST_BYTES), ce, ect1.wrapping_sub(FIRST_BYTES)].map(|bytes| bytes & 0x00ff_ffff)
        };
        EcnCounts {
            mode: self.mode,
            seen: self.seen,
            delivered_ce: self.marked(),
            delivered_bytes: counted(self.bytes_out),
            received_ce: self.marks_in.wrapping_sub(FIRST_COUNT),
            received_bytes: counted(self.bytes_in),
            option_seen: self.option,
        }
    }
}

/// The ECN counters of a connection. Bytes are modulo 2^24, and counted by accurate ECN only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EcnCounts {
    /// The mode of ECN of a connection.
    pub mode: EcnMode,
    /// A segment of the peer's was capable of ECN, or marked.
    pub seen: bool,
    /// Our segments that met congestion, as far as the peer has reported.
    pub delivered_ce: u32,
    /// Our bytes that arrived with ECT(0), with CE, with ECT(1), as far as the peer has reported.
    pub delivered_bytes: [u32; 3],
    /// Segments of the peer's that met congestion.
    pub received_ce: u32,
    /// Bytes that arrived with ECT(0), with CE, with ECT(1).
    pub received_bytes: [u32; 3],
    /// The peer's option with its counters was seen.
    pub option_seen: bool,
}
