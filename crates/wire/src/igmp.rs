//! Group membership of IPv4 hosts: reads the queries of all three versions (RFC 1112, RFC 2236, RFC 3376), and writes a
//! host's reports. Source lists are skipped and never sent: this stack joins groups from any source.

use core::net::Ipv4Addr;
use core::time::Duration;

use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use crate::mld::RecordKind;
use crate::{ParseError, checksum};

/// Type of a query of any version.
pub const QUERY: u8 = 0x11;
/// Type of a version 1 report.
pub const V1_REPORT: u8 = 0x12;
/// Type of a version 2 report.
pub const V2_REPORT: u8 = 0x16;
/// Type of a version 2 leave.
pub const V2_LEAVE: u8 = 0x17;
/// Type of a version 3 report.
pub const V3_REPORT: u8 = 0x22;
/// All hosts: the destination of general queries, and the one group that is never reported (RFC 3376 section 5).
pub const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
/// All routers: where version 2 leaves go (RFC 2236 section 3).
pub const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
/// All routers that understand version 3: where its reports go (RFC 3376 section 4.2.14).
pub const ALL_V3_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);
/// Time to live of every message (RFC 3376 section 4).
pub const TTL: u8 = 1;
/// Type of service of every message: internetwork control (RFC 3376 section 4).
pub const TOS: u8 = 0xc0;
/// Bytes of every message that is not of version 3.
pub const MESSAGE_LEN: usize = 8;
/// The most groups in one report: they fit a datagram that every host must accept.
pub const MAX_RECORDS: usize = 64;

const V3_QUERY_LEN: usize = 12;
const RECORD_LEN: usize = 8;
/// The maximum response time of version 1, which its queries do not contain (RFC 1112 appendix I).
const V1_RESPONSE: Duration = Duration::from_secs(10);

/// The beginning of queries of all versions; reports differ in the meaning of `group`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct View {
    kind: u8,
    code: u8,
    checksum: U16,
    group: [u8; 4],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RecordView {
    kind: u8,
    aux_len: u8,
    sources: U16,
    group: [u8; 4],
}

/// The version of a querier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// RFC 1112.
    One,
    /// RFC 2236.
    Two,
    /// RFC 3376.
    Three,
}

/// A membership query of a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// The group queried; unspecified for all groups.
    pub group: Ipv4Addr,
    /// Reports must be sent within this time, spread over it.
    pub max_response: Duration,
    /// The version of the querier.
    pub version: Version,
}

/// A parsed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// A query.
    Query(Query),
    /// A message for routers, or of unknown type.
    Other {
        /// Its type.
        kind: u8,
    },
}

/// Reads a message: checks the checksum, and determines a query's version by its length (RFC 3376 section 7.1).
///
/// # Errors
/// [`ParseError::Truncated`] below 8 bytes, [`ParseError::BadChecksum`], [`ParseError::BadLength`] for a query of a
/// length that no version has, [`ParseError::BadField`] if its group is neither unspecified nor a group.
pub fn parse(message: &[u8]) -> Result<Message, ParseError> {
    let (view, _) = View::ref_from_prefix(message).map_err(|_| ParseError::Truncated)?;
    if !checksum::sum(message).is_valid() {
        return Err(ParseError::BadChecksum);
    }
    if view.kind != QUERY {
        return Ok(Message::Other { kind: view.kind });
    }
    let group = Ipv4Addr::from(view.group);
    if !group.is_unspecified() && !group.is_multicast() {
        return Err(ParseError::BadField);
    }
    let tenths = |count: u32| Duration::from_millis(100) * count;
    let (version, max_response) = match (message.len(), view.code) {
        (MESSAGE_LEN, 0) => (Version::One, V1_RESPONSE),
        (MESSAGE_LEN, code) => (Version::Two, tenths(code.into())),
        (V3_QUERY_LEN.., code) => (Version::Three, tenths(expanded(code))),
        _ => return Err(ParseError::BadLength),
    };
    Ok(Message::Query(Query { group, max_response, version }))
}

/// A maximum response code of version 3 (section 4.1.1): from 128 on a floating point number with a hidden one, four
/// bits of mantissa and three of exponent.
fn expanded(code: u8) -> u32 {
    match code {
        0..0x80 => u32::from(code),
        _ => (u32::from(code & 0x0f) | 0x10) << (u32::from(code >> 4 & 7) + 3),
    }
}

/// Bytes of a version 3 report of `records` groups.
pub const fn report_len(records: usize) -> usize {
    MESSAGE_LEN + RECORD_LEN * records
}

/// Writes a version 3 report over the first bytes of `out`, checksum included, and returns its length: 0, with nothing
/// written, if there is no room or there are more than [`MAX_RECORDS`] records.
pub fn emit_report(records: &[(RecordKind, Ipv4Addr)], out: &mut [u8]) -> usize {
    let len = report_len(records.len());
    let Some(message) = out.get_mut(..len).filter(|_| records.len() <= MAX_RECORDS) else { return 0 };
    let Ok((header, body)) = View::mut_from_prefix(message) else { return 0 };
    let [high, low] = (records.len() as u16).to_be_bytes();
    *header = View { kind: V3_REPORT, code: 0, checksum: U16::ZERO, group: [0, 0, high, low] };
    for (chunk, (kind, group)) in body.chunks_exact_mut(RECORD_LEN).zip(records) {
        let record = RecordView { kind: *kind as u8, aux_len: 0, sources: U16::ZERO, group: group.octets() };
        // The chunk has the record's length.
        let _ = record.write_to(chunk);
    }
    sign(message);
    len
}

/// Writes a message of version 1 or 2 about one group over the first [`MESSAGE_LEN`] bytes of `out`, checksum included,
/// and returns their number: 0, with nothing written, if there is no room.
pub fn emit_v1_or_v2(kind: u8, group: Ipv4Addr, out: &mut [u8]) -> usize {
    let Some(message) = out.get_mut(..MESSAGE_LEN) else { return 0 };
    let Ok((header, _)) = View::mut_from_prefix(message) else { return 0 };
    *header = View { kind, code: 0, checksum: U16::ZERO, group: group.octets() };
    sign(message);
    MESSAGE_LEN
}

fn sign(message: &mut [u8]) {
    let checksum = checksum::sum(message).finish();
    if let Ok((header, _)) = View::mut_from_prefix(message) {
        header.checksum = U16::new(checksum);
    }
}

/// The group of a message of version 1 or 2, or the records of a version 3 report, those that fit it: for tests and
/// tools.
pub fn parse_report(message: &[u8]) -> impl Iterator<Item = (u8, Ipv4Addr)> + '_ {
    let view = View::ref_from_prefix(message).ok().map(|(view, _)| view);
    let old = view.filter(|view| view.kind != V3_REPORT).map(|view| (view.kind, view.group.into()));
    let body = message.get(MESSAGE_LEN..).unwrap_or_default();
    let records = body.chunks_exact(RECORD_LEN).filter_map(|chunk| {
        let record = RecordView::ref_from_bytes(chunk).ok()?;
        Some((record.kind, record.group.into()))
    });
    old.into_iter().chain(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

    fn query(len: usize, code: u8, group: Ipv4Addr) -> Result<Message, ParseError> {
        let mut bytes = [0; 20];
        (bytes[0], bytes[1]) = (QUERY, code);
        bytes[4..8].copy_from_slice(&group.octets());
        let sum = checksum::sum(&bytes[..len]).finish();
        bytes[2..4].copy_from_slice(&sum.to_be_bytes());
        parse(&bytes[..len])
    }

    fn told(version: Version, millis: u64) -> Result<Message, ParseError> {
        let max_response = Duration::from_millis(millis);
        Ok(Message::Query(Query { group: GROUP, max_response, version }))
    }

    #[test]
    fn the_length_tells_the_version() {
        assert_eq!(query(8, 0, GROUP), told(Version::One, 10_000));
        assert_eq!(query(8, 100, GROUP), told(Version::Two, 10_000));
        assert_eq!(query(8, 0xff, GROUP), told(Version::Two, 25_500));
        assert_eq!(query(12, 100, GROUP), told(Version::Three, 10_000));
        assert_eq!(query(16, 0x80, GROUP), told(Version::Three, 12_800));
        assert_eq!(query(12, 0xff, GROUP), told(Version::Three, 3_174_400));
        for len in 9..12 {
            assert_eq!(query(len, 100, GROUP), Err(ParseError::BadLength));
        }
        assert_eq!(query(8, 1, Ipv4Addr::new(10, 0, 0, 1)), Err(ParseError::BadField));
        assert_eq!(parse(&[QUERY; 7]), Err(ParseError::Truncated));
        assert_eq!(parse(&[QUERY, 100, 0, 0, 0, 0, 0, 0]), Err(ParseError::BadChecksum));
    }

    #[test]
    fn reports_are_read_back_and_their_checksums_hold() {
        let records = [(RecordKind::Joined, GROUP), (RecordKind::Left, Ipv4Addr::new(239, 0, 0, 1))];
        let mut out = [0; 24];
        assert_eq!(emit_report(&records, &mut out), 24);
        assert_eq!(parse(&out), Ok(Message::Other { kind: V3_REPORT }));
        let read: alloc::vec::Vec<_> = parse_report(&out).collect();
        assert_eq!(read, [(4, GROUP), (3, records[1].1)]);
        assert_eq!(emit_report(&records, &mut out[..23]), 0);
        assert_eq!(emit_v1_or_v2(V2_LEAVE, GROUP, &mut out), 8);
        assert_eq!(parse(&out[..8]), Ok(Message::Other { kind: V2_LEAVE }));
        assert_eq!(parse_report(&out[..8]).collect::<alloc::vec::Vec<_>>(), [(V2_LEAVE, GROUP)]);
        assert_eq!(emit_v1_or_v2(V2_LEAVE, GROUP, &mut out[..7]), 0);
    }
}
