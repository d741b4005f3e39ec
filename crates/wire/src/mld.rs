//! Multicast listener discovery for IPv6 (RFC 2710, RFC 3810), for hosts: reads the queries and writes the reports of
//! both versions. Source lists are skipped and never sent: this stack joins groups from any source.

use core::net::Ipv6Addr;
use core::time::Duration;

use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{ParseError, checksum, protocol};

/// ICMPv6 type of a query.
pub const QUERY: u8 = 130;
/// ICMPv6 type of a version 1 report.
pub const V1_REPORT: u8 = 131;
/// ICMPv6 type of the message with which version 1 leaves.
pub const V1_DONE: u8 = 132;
/// ICMPv6 type of a version 2 report.
pub const REPORT: u8 = 143;
/// All routers that understand version 2: where reports go (RFC 3810 section 5.2.14).
pub const ALL_V2_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
/// Hop limit of every message (RFC 3810 section 5).
pub const HOP_LIMIT: u8 = 1;
/// The hop-by-hop header that every message carries: next header ICMPv6, router alert for MLD (RFC 2711), two bytes of
/// padding.
pub const ROUTER_ALERT: [u8; 8] = [protocol::ICMPV6, 0, 5, 2, 0, 0, 1, 0];
/// The most groups in one report: they fit the minimum MTU.
pub const MAX_RECORDS: usize = 59;

const REPORT_HEADER_LEN: usize = 8;
const RECORD_LEN: usize = 20;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct QueryView {
    kind: u8,
    code: u8,
    checksum: U16,
    max_response_code: U16,
    reserved: U16,
    group: [u8; 16],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ReportView {
    kind: u8,
    reserved: u8,
    checksum: U16,
    reserved_too: U16,
    records: U16,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RecordView {
    kind: u8,
    aux_len: u8,
    sources: U16,
    group: [u8; 16],
}

/// A listener query of a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// The group queried; unspecified for all groups.
    pub group: Ipv6Addr,
    /// Reports must be sent within this time, spread over it.
    pub max_response: Duration,
    /// The querier uses version 1 (RFC 2710).
    pub is_v1: bool,
}

/// Reads a query of either version (section 5.1); the ICMPv6 checksum was checked with the message's type.
///
/// # Errors
/// [`ParseError::Truncated`] below 24 bytes, [`ParseError::BadField`] if the group is neither unspecified nor a group.
pub fn parse_query(message: &[u8]) -> Result<Query, ParseError> {
    let (view, rest) = QueryView::ref_from_prefix(message).map_err(|_| ParseError::Truncated)?;
    let group = Ipv6Addr::from(view.group);
    if !group.is_unspecified() && !group.is_multicast() {
        return Err(ParseError::BadField);
    }
    let code = view.max_response_code.get();
    // Version 1 has no more than these 24 bytes, and a plain number of milliseconds.
    let millis = match code {
        code if rest.is_empty() || code < 0x8000 => u32::from(code),
        // A floating point number with a hidden one, twelve bits of mantissa and three of exponent (section 5.1.3).
        code => (u32::from(code & 0x0fff) | 0x1000) << (u32::from(code >> 12 & 7) + 3),
    };
    Ok(Query { group, max_response: Duration::from_millis(millis.into()), is_v1: rest.is_empty() })
}

/// The type of a group record (section 5.2.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// In answer to a query: the host listens, to every source.
    Listening = 2,
    /// The host no longer listens.
    Left = 3,
    /// The host listens from now on, to every source.
    Joined = 4,
}

/// Bytes of a report of `records` groups.
pub const fn report_len(records: usize) -> usize {
    REPORT_HEADER_LEN + RECORD_LEN * records
}

/// Writes a report over the first bytes of `out`, checksum included, and returns its length: 0, with nothing written,
/// if there is no room or there are more than [`MAX_RECORDS`] records.
pub fn emit_report(src: Ipv6Addr, records: &[(RecordKind, Ipv6Addr)], out: &mut [u8]) -> usize {
    let len = report_len(records.len());
    let Some(message) = out.get_mut(..len).filter(|_| records.len() <= MAX_RECORDS) else { return 0 };
    let Ok((header, body)) = ReportView::mut_from_prefix(message) else { return 0 };
    *header = ReportView {
        kind: REPORT,
        reserved: 0,
        checksum: U16::ZERO,
        reserved_too: U16::ZERO,
        records: U16::new(records.len() as u16),
    };
    for (chunk, (kind, group)) in body.chunks_exact_mut(RECORD_LEN).zip(records) {
        let record = RecordView { kind: *kind as u8, aux_len: 0, sources: U16::ZERO, group: group.octets() };
        // The chunk has the record's length.
        let _ = record.write_to(chunk);
    }
    let pseudo = checksum::pseudo_header(src.into(), ALL_V2_ROUTERS.into(), protocol::ICMPV6, len as u32);
    let checksum = pseudo.add(checksum::sum(message)).finish();
    if let Ok((header, _)) = ReportView::mut_from_prefix(message) {
        header.checksum = U16::new(checksum);
    }
    len
}

/// Bytes of a message of version 1.
pub const V1_LEN: usize = size_of::<QueryView>();

/// Writes a message of version 1 from `src` to `dst` about one group over the first [`V1_LEN`] bytes of `out`, checksum
/// included, and returns their number: 0, with nothing written, if there is no room.
pub fn emit_v1(kind: u8, (src, dst): (Ipv6Addr, Ipv6Addr), group: Ipv6Addr, out: &mut [u8]) -> usize {
    let Some(message) = out.get_mut(..V1_LEN) else { return 0 };
    let Ok((view, _)) = QueryView::mut_from_prefix(message) else { return 0 };
    let (max_response_code, reserved) = (U16::ZERO, U16::ZERO);
    *view = QueryView { kind, code: 0, checksum: U16::ZERO, max_response_code, reserved, group: group.octets() };
    let pseudo = checksum::pseudo_header(src.into(), dst.into(), protocol::ICMPV6, V1_LEN as u32);
    let checksum = pseudo.add(checksum::sum(message)).finish();
    if let Ok((view, _)) = QueryView::mut_from_prefix(message) {
        view.checksum = U16::new(checksum);
    }
    V1_LEN
}

/// The records of a report, those that fit it: for tests and tools.
pub fn parse_report(message: &[u8]) -> impl Iterator<Item = (u8, Ipv6Addr)> + '_ {
    let body = message.get(REPORT_HEADER_LEN..).unwrap_or_default();
    body.chunks_exact(RECORD_LEN).filter_map(|chunk| {
        let record = RecordView::ref_from_bytes(chunk).ok()?;
        Some((record.kind, record.group.into()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

    #[test]
    fn a_report_is_read_back_and_its_checksum_holds() {
        let records = [(RecordKind::Joined, Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 7)), (RecordKind::Left, US)];
        let mut out = [0; 48];
        assert_eq!(emit_report(US, &records, &mut out), 48);
        let read: alloc::vec::Vec<_> = parse_report(&out).collect();
        assert_eq!(read, [(4, records[0].1), (3, US)]);
        let kind = crate::icmpv6::parse(&out, US, ALL_V2_ROUTERS).map(|message| message.header_len());
        assert_eq!(kind, Ok(8));
        assert_eq!(emit_report(US, &records, &mut out[..47]), 0);
    }

    #[test]
    fn queries_of_both_versions_tell_their_time() {
        let query = |code: u16, len: usize| {
            let mut bytes = [0; 28];
            (bytes[0], bytes[4], bytes[5]) = (QUERY, (code >> 8) as u8, code as u8);
            parse_query(&bytes[..len]).map(|query| query.max_response.as_millis())
        };
        assert_eq!(query(10_000, 28), Ok(10_000));
        assert_eq!(query(0x8000, 28), Ok(0x1000 << 3));
        assert_eq!(query(0xffff, 28), Ok(0x1fff << 10));
        assert_eq!(query(0xffff, 24), Ok(65_535));
        assert_eq!(query(1, 23), Err(ParseError::Truncated));
        let mut unicast = [0; 28];
        unicast[8] = 0x20;
        assert_eq!(parse_query(&unicast), Err(ParseError::BadField));
    }
}
