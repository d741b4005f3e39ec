//! The names of the packets' workload on the command line and in the papers' data files: words for its traffic, joined to
//! a name; and a line that describes a whole run, with the architecture first.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use pktbuf::Caching;
use stack::Architecture;
use sync::LockKind;

use super::{Packets, ReferenceCounts, Side, Summing};
use crate::preset::{Kernel, Preset};

/// RFC 1122 section 3.3.2: every host takes datagrams of this length, in bytes.
const LEAST_MTU_V4: usize = 576;

/// The reason why a line describes no run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError(String);

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SpecError {}

/// The load of a run. Written as words with a `+` between them: `receive+checksum`, `send+udp`.
///
/// | word | |
/// |---|---|
/// | `receive`, `send` | the side; `receive` if none is named |
/// | `udp` | datagrams |
/// | `checksum`, `inside`, `after` | checksums by the stack, before the connection is held, while it is, or when it has been released |
/// | `tickets` | application tickets |
/// | `each` | a connection for each CPU, whatever number of them is asked for |
/// | `counts=atomic`, `counts=locked` | under `msgp-pool`, the holders of a connection are counted by an atomic instruction that is charged, or under a lock of their own; without the word nothing is charged for counting |
/// | `global-caches` | free packet buffers are kept under one lock for each size, of the kernel's kind, instead of for each thread |
/// | `fddi` | the driver is one of FDDI, with its link headers and its MTU of 4352 bytes; without the word it is one of Ethernet, whose MTU is that of the packets |
/// | `bytes=N` | data of a packet, from 1 to what IP carries ([`Packets::most_data`]); 4096 |
/// | `locks=KIND` | the kind of all locks but those whose kind the architecture says |
/// | `ms=N` | virtual time that is measured, in milliseconds; 1000 |
///
/// ```
/// # use vsmp::workload::packets::{Side, Traffic};
/// let traffic: Traffic = "send+checksum+each".parse()?;
/// assert_eq!((traffic.side, traffic.each), (Side::Send, true));
/// assert_eq!(traffic.to_string(), "send+checksum+each");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// The side of the stack.
    pub side: Side,
    /// Datagrams instead of segments, by one socket.
    pub udp: bool,
    /// Checksums.
    pub summing: Summing,
    /// Application tickets on the receive side of TCP.
    pub tickets: bool,
    /// A connection for each CPU.
    pub each: bool,
    /// How the holders of a connection are counted; `None`: nothing is charged for it.
    pub counts: Option<ReferenceCounts>,
    /// Where free packet buffers are kept.
    pub caching: Caching,
    /// The driver's frames are those of FDDI.
    pub fddi: bool,
    /// Bytes of data in a packet.
    pub payload: usize,
    /// The kind of all locks, but those of a connection if the architecture says theirs; `None`: the kernel's.
    pub lock_kind: Option<LockKind>,
    /// Virtual time of the measurement.
    pub time: Duration,
}

impl Default for Traffic {
    fn default() -> Traffic {
        Traffic {
            side: Side::Receive,
            udp: false,
            summing: Summing::Card,
            tickets: false,
            each: false,
            counts: None,
            caching: Caching::PerThread,
            fddi: false,
            payload: 4096,
            lock_kind: None,
            time: Duration::from_secs(1),
        }
    }
}

impl FromStr for Traffic {
    type Err = SpecError;

    fn from_str(words: &str) -> Result<Traffic, SpecError> {
        let mut traffic = Traffic::default();
        words.split('+').try_for_each(|word| traffic.apply(word))?;
        Ok(traffic)
    }
}

impl fmt::Display for Traffic {
    /// The side, and each word for what is not usual.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.side == Side::Receive { "receive" } else { "send" })?;
        let words = [
            ("udp", self.udp),
            ("checksum", self.summing == Summing::Before),
            ("inside", self.summing == Summing::Inside),
            ("after", self.summing == Summing::After),
            ("tickets", self.tickets),
            ("each", self.each),
            ("counts=atomic", self.counts == Some(ReferenceCounts::Atomic)),
            ("counts=locked", self.counts == Some(ReferenceCounts::Locked)),
            ("global-caches", self.caching == Caching::Global),
            ("fddi", self.fddi),
        ];
        words.iter().filter(|(_, is)| *is).try_for_each(|(word, _)| write!(f, "+{word}"))?;
        let usual = Traffic::default();
        if self.payload != usual.payload {
            write!(f, "+bytes={}", self.payload)?;
        }
        if let Some(kind) = self.lock_kind {
            write!(f, "+locks={kind}")?;
        }
        if self.time == usual.time { Ok(()) } else { write!(f, "+ms={}", self.time.as_millis()) }
    }
}

impl Traffic {
    /// Virtual time before the measurement.
    pub fn warm_up(&self) -> Duration {
        self.time / 4
    }

    fn apply(&mut self, word: &str) -> Result<(), SpecError> {
        let unknown = || SpecError(format!("`{word}` means nothing to the packets' workload"));
        match word.split_once('=') {
            None => match word {
                "receive" => self.side = Side::Receive,
                "send" => self.side = Side::Send,
                "udp" => self.udp = true,
                "checksum" => self.summing = Summing::Before,
                "inside" => self.summing = Summing::Inside,
                "after" => self.summing = Summing::After,
                "tickets" => self.tickets = true,
                "each" => self.each = true,
                "global-caches" => self.caching = Caching::Global,
                "fddi" => self.fddi = true,
                _ => return Err(unknown()),
            },
            Some(("locks", kind)) => {
                self.lock_kind = Some(kind.parse().map_err(|error| SpecError(format!("{error}")))?);
            }
            Some(("counts", how)) => {
                self.counts = Some(match how {
                    "atomic" => ReferenceCounts::Atomic,
                    "locked" => ReferenceCounts::Locked,
                    _ => return Err(unknown()),
                });
            }
            Some((name, number)) => {
                let number: usize = number.parse().map_err(|_| unknown())?;
                match name {
                    "bytes" => self.payload = number,
                    "ms" => self.time = Duration::from_millis(number as u64),
                    _ => return Err(unknown()),
                }
            }
        }
        Ok(())
    }
}

impl Packets {
    /// A run on `cpus` CPUs of a machine, with the footprint and the habits of its kernel, from an architecture and the words
    /// that follow it: those of [`Traffic`], `conns=N` for the number of connections (1), and `ipv6`.
    ///
    /// ```
    /// # use vsmp::{Preset, workload::packets::Packets};
    /// let preset = Preset::named("sgi-challenge")?;
    /// let packets = Packets::parse("msgp-pool+tas+unordered receive checksum each", 8, 1, &preset)?;
    /// assert_eq!((packets.traffic.to_string().as_str(), packets.connections()), ("receive+checksum+each", 8));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A word means nothing, there is no such architecture, or [`Packets::check`] finds something.
    pub fn parse(line: &str, cpus: usize, seed: u64, preset: &Preset) -> Result<Packets, SpecError> {
        let mut words = line.split_whitespace();
        let arch: Architecture =
            words.next().unwrap_or_default().parse().map_err(|error| SpecError(format!("{error}")))?;
        let (traffic, preset, kernel) = (Traffic::default(), preset.clone(), Kernel::OfThePaper);
        let mut packets = Packets { arch, cpus, connections: 1, traffic, ipv6: false, preset, kernel, seed };
        for word in words {
            match word.strip_prefix("conns=").map(str::parse) {
                Some(Ok(number)) => packets.connections = number,
                _ if word == "ipv6" => packets.ipv6 = true,
                _ => packets.traffic.apply(word)?,
            }
        }
        packets.check()?;
        Ok(packets)
    }

    /// Whether it can run.
    ///
    /// # Errors
    /// The architecture lets one thread use a connection, or a number is out of range.
    pub fn check(&self) -> Result<(), SpecError> {
        if self.arch.properties().single_thread {
            return Err(SpecError(format!(
                "`{}` lets one thread use a connection; packets are carried by several",
                self.arch
            )));
        }
        if !(1..=64).contains(&self.connections()) || self.cpus == 0 {
            return Err(SpecError("packets are carried on 1 to 64 connections, by at least one CPU".to_owned()));
        }
        self.check_size()?;
        if self.traffic.time.is_zero() {
            return Err(SpecError("nothing is measured in no time".to_owned()));
        }
        Ok(())
    }

    fn check_size(&self) -> Result<(), SpecError> {
        let Traffic { payload, udp, fddi, side, .. } = self.traffic;
        let most = self.most_data();
        if (1..=most).contains(&payload) {
            return Ok(());
        }
        let (mtu, version) = (wire::fddi::MTU, if self.ipv6 { "IPv6" } else { "IPv4" });
        let protocol = if udp { "UDP" } else { "TCP" };
        Err(SpecError(match (fddi, udp, side) {
            (true, true, Side::Receive) => format!(
                "over FDDI received datagrams have 1 to {most} bytes, because its MTU is {mtu} and the remote end makes no fragments"
            ),
            (true, false, _) => format!("over FDDI packets have 1 to {most} bytes, because its MTU is {mtu}"),
            _ => format!("packets have 1 to {most} bytes, because {version} and {protocol} carry no more"),
        }))
    }

    /// The most data of a packet, in bytes: what the length fields of IP leave behind the headers, which have no options; over FDDI
    /// what its MTU leaves, except that the stack sends longer datagrams in fragments.
    pub fn most_data(&self) -> usize {
        // IPv4's length counts its header, that of IPv6 does not.
        let longest = usize::from(u16::MAX) + if self.ipv6 { wire::ipv6::HEADER_LEN } else { 0 };
        let Traffic { udp, fddi, side, .. } = self.traffic;
        let whole = fddi && !(udp && side == Side::Send);
        let packet = if whole { wire::fddi::MTU } else { longest };
        packet - self.headers()
    }

    /// Bytes of the headers of IP and of TCP or UDP.
    fn headers(&self) -> usize {
        let network = if self.ipv6 { wire::ipv6::HEADER_LEN } else { wire::ipv4::HEADER_LEN };
        network + if self.traffic.udp { wire::udp::HEADER_LEN } else { wire::tcp::HEADER_LEN }
    }

    /// The MTU of the link over Ethernet, which is that of the packets, but no less than any link of the Internet has.
    pub(super) fn mtu(&self) -> usize {
        let least = if self.ipv6 { wire::ipv6::MIN_MTU } else { LEAST_MTU_V4 };
        least.max(self.traffic.payload + self.headers())
    }
}
