//! A script as a value, the output of [`crate::parse`] and the input of [`crate::run`].

use crate::code::Block;

/// Nanoseconds of script time.
pub type Nanos = i64;

/// A whole script.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// `--name=value` lines, in order.
    pub options: Vec<Setting>,
    /// The events.
    pub events: Vec<Event>,
}

/// One `--name=value`.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Its line.
    pub line: u32,
    /// The name without the dashes.
    pub name: String,
    /// The value; empty if there is none.
    pub value: String,
}

/// One step.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its line, from 1.
    pub line: u32,
    /// When it happens.
    pub when: When,
    /// The event itself.
    pub action: Action,
}

/// A time in a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// `1.5`: since the script began.
    Absolute(Nanos),
    /// `+.1`: since the event before.
    Relative(Nanos),
    /// `1~2`.
    AbsoluteRange(Nanos, Nanos),
    /// `+.1~+.2`.
    RelativeRange(Nanos, Nanos),
    /// `*`: any time.
    Any,
}

/// The action of an event.
#[derive(Clone, Debug)]
pub enum Action {
    /// A packet is injected, or expected.
    Packet(Box<Packet>),
    /// The program under test makes a system call.
    Call(Box<Call>),
    /// Shell lines.
    Shell(String),
    /// Assertions.
    Code(Block),
}

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// `<`: to the stack.
    Inbound,
    /// `>`: from the stack.
    Outbound,
}

/// A packet as written.
#[derive(Clone, Debug, PartialEq)]
pub struct Packet {
    /// Which way.
    pub direction: Direction,
    /// Fields of its IP header given in the script.
    pub ip: IpInfo,
    /// Its payload.
    pub body: Body,
}

/// `[ect0]`, `(tos 0x10)`, `[ttl 64]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IpInfo {
    /// The ECN field, or all of the type of service.
    pub tos: Option<Tos>,
    /// Time to live or hop limit.
    pub ttl: Option<u8>,
    /// IPv6 flow label.
    pub flow_label: Option<u32>,
}

/// The part of the type-of-service byte given in the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tos {
    /// The two ECN bits.
    Ecn(u8),
    /// ECT(0) or ECT(1).
    Ect01,
    /// All eight bits.
    Whole(u8),
}

/// The payload of a packet.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// A TCP segment.
    Tcp(TcpSpec),
    /// A UDP datagram.
    Udp {
        /// Source and destination port, if given.
        ports: Option<(u16, u16)>,
        /// Bytes of payload.
        len: u16,
    },
    /// An ICMP message.
    Icmp(IcmpSpec),
}

/// A TCP segment as written. Sequence numbers are the script's.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpSpec {
    /// Source and destination port, if given.
    pub ports: Option<(u16, u16)>,
    /// Control bits; bit 8 is AE (RFC 9768).
    pub flags: u16,
    /// First sequence number.
    pub seq: u32,
    /// Bytes of data.
    pub len: u32,
    /// Acknowledgement number.
    pub ack: Option<u32>,
    /// Window field.
    pub window: Option<u16>,
    /// Urgent pointer.
    pub urgent: Option<u16>,
    /// Options in order; `None` is `<...>`: any.
    pub options: Option<Vec<TcpOption>>,
}

/// Bits of [`TcpSpec::flags`].
pub mod flag {
    /// No more data.
    pub const FIN: u16 = 1;
    /// Synchronise.
    pub const SYN: u16 = 2;
    /// Reset.
    pub const RST: u16 = 4;
    /// Push.
    pub const PSH: u16 = 8;
    /// The acknowledgement counts.
    pub const ACK: u16 = 0x10;
    /// The urgent pointer field is significant.
    pub const URG: u16 = 0x20;
    /// ECN echo.
    pub const ECE: u16 = 0x40;
    /// Congestion window reduced.
    pub const CWR: u16 = 0x80;
    /// Accurate ECN (RFC 9768).
    pub const AE: u16 = 0x100;
}

/// A TCP option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TcpOption {
    /// `eol`
    Eol,
    /// `nop`
    Nop,
    /// `mss 1460`
    Mss(u16),
    /// `wscale 8`
    WindowScale(u8),
    /// `sackOK`
    SackPermitted,
    /// `sack 1:2 3:4`
    Sack(Vec<(u32, u32)>),
    /// `TS val 1 ecr 2`
    Timestamps {
        /// Sender's clock.
        val: u32,
        /// Echo.
        ecr: u32,
    },
    /// `FO cookie`
    FastOpen(Vec<u8>),
    /// `FOEXP cookie`: the experimental kind.
    FastOpenExperimental(Vec<u8>),
    /// `ECN e0b 1 ceb 0 e1b 1` (order 0) or `ECN e1b 1 ceb 0 e0b 1` (order 1).
    AccEcn {
        /// Whether the ECT(1) counter comes first.
        order1: bool,
        /// One to three counters of 24 bits.
        fields: Vec<u32>,
    },
    /// Any other kind, seen on the wire only.
    Other(u8, Vec<u8>),
}

/// An ICMP message as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IcmpSpec {
    /// `unreachable`, `packet_too_big`, `time_exceeded`, ...
    pub kind: String,
    /// `frag_needed`, `port_unreachable`, ...
    pub code: Option<String>,
    /// MTU of the next hop.
    pub mtu: Option<u32>,
    /// Identifier of an echo.
    pub id: Option<u16>,
    /// The quoted packet.
    pub quoted: Option<Quoted>,
}

/// The packet that an ICMP message quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quoted {
    /// `[1:1001(1000)]`
    Tcp {
        /// First sequence number, the script's.
        seq: u32,
        /// Bytes of data.
        len: u32,
    },
    /// `[udp (1000)]`
    Udp(u16),
}

/// A system call as written.
#[derive(Clone, Debug)]
pub struct Call {
    /// `0...0.3`: when it returns, relative like the event's time.
    pub end: Option<Nanos>,
    /// The function.
    pub name: String,
    /// Its arguments.
    pub args: Vec<Expr>,
    /// The result.
    pub result: Expr,
    /// The error's name.
    pub errno: Option<String>,
}

/// An argument or result.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// `...`
    Ellipsis,
    /// A number.
    Int(i64),
    /// A name.
    Word(String),
    /// A string.
    Text(Vec<u8>),
    /// `[a, b]`
    List(Vec<Expr>),
    /// `{a=1, b}`
    Struct(Vec<Field>),
    /// `htons(80)`
    Apply(String, Vec<Expr>),
    /// `a | b`
    Binary(Operator, Box<Expr>, Box<Expr>),
    /// `~a`
    Not(Box<Expr>),
}

/// One entry of a structure: `name=value`, `name(length)=value`, or a value alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// The name, if it has one.
    pub name: Option<String>,
    /// The value.
    pub value: Expr,
}

/// Operators of C that arguments use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `|`
    Or,
    /// `&`
    And,
    /// `+`
    Add,
    /// `*`
    Multiply,
    /// `<<`
    ShiftLeft,
}
