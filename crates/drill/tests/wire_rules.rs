//! Properties of every segment that the stack sends, checked in all packet scripts.
//!
//! The architectures send the same bytes (`scripts.rs` compares them), so one is enough here.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;

use heddle_drill::Family;
use heddle_drill::batch::find;
use heddle_drill::check::check;
use heddle_drill::run::Options;
use wire::ethernet::EtherType;
use wire::tcp::TcpFlags;
use wire::{checksum, ethernet, ipv4, ipv6, protocol};

/// A TCP segment on the link.
struct Seen {
    outbound: bool,
    src: IpAddr,
    dst: IpAddr,
    segment: Vec<u8>,
}

impl Seen {
    fn of(outbound: bool, frame: &[u8]) -> Option<Seen> {
        let (header, start) = ethernet::parse(frame).ok()?;
        let (src, dst, segment) = match header.ethertype {
            EtherType::Ipv4 => {
                let ip =
                    ipv4::parse(&frame[start..]).ok().filter(|ip| ip.protocol == protocol::TCP && !ip.is_fragment())?;
                let packet = &frame[start..start + usize::from(ip.total_len)];
                (ip.src.into(), ip.dst.into(), &packet[usize::from(ip.header_len)..])
            }
            EtherType::Ipv6 => {
                let ip = ipv6::parse(&frame[start..]).ok().filter(|ip| ip.next_header == protocol::TCP)?;
                let payload = &frame[start + ipv6::HEADER_LEN..];
                (ip.src.into(), ip.dst.into(), &payload[..usize::from(ip.payload_len)])
            }
            _ => return None,
        };
        Some(Seen { outbound, src, dst, segment: segment.to_vec() })
    }

    fn flags(&self) -> TcpFlags {
        TcpFlags(self.segment[13].into())
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.segment[at..at + 4].try_into().expect("four bytes"))
    }

    /// Kinds and values of the options by RFC 9293, 3.1; an error if the list is malformed.
    fn options(&self) -> Result<Vec<(u8, &[u8])>, String> {
        let mut rest = &self.segment[20..usize::from(self.segment[12] >> 4) * 4];
        let mut found = Vec::new();
        while let Some((&kind, after)) = rest.split_first() {
            match kind {
                0 if after.iter().all(|byte| *byte == 0) => return Ok(found),
                0 => return Err(format!("{after:?} is behind the end of the list")),
                1 => rest = after,
                _ => {
                    let len = after.first().map_or(0, |len| usize::from(*len));
                    let value = rest.get(2..len).ok_or_else(|| format!("option {kind} with length {len}"))?;
                    found.push((kind, value));
                    rest = &rest[len..];
                }
            }
        }
        Ok(found)
    }

    fn option(&self, kind: u8) -> Option<Vec<u8>> {
        let options = self.options().ok()?;
        options.iter().find(|(found, _)| *found == kind).map(|(_, value)| value.to_vec())
    }

    /// This end and the other.
    fn ends(&self) -> [(IpAddr, [u8; 2]); 2] {
        let port = |at: usize| [self.segment[at], self.segment[at + 1]];
        [(self.src, port(0)), (self.dst, port(2))]
    }
}

/// All segments on the link in the scripts of both families, with each script's name.
fn everything() -> Vec<(String, Vec<Seen>)> {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/scripts");
    let mut all = Vec::new();
    for path in find(&[scripts]).expect("the scripts are there") {
        let text = std::fs::read_to_string(&path).expect("it is text");
        for family in [Family::V4, Family::V6] {
            let arch = "up".parse().expect("a plan");
            let options = Options { family, directory: path.parent().map(Path::to_owned), ..Options::new(arch) };
            let traces = check(&text, &[arch], &options, &[]).traces;
            let crossings = traces.iter().flat_map(|(_, trace)| trace);
            let seen = crossings.filter_map(|crossing| Seen::of(crossing.outbound, &crossing.frame)).collect();
            all.push((path.display().to_string(), seen));
        }
    }
    assert!(all.iter().map(|(_, seen): &(_, Vec<Seen>)| seen.len()).sum::<usize>() > 10_000);
    all
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
//= type=test
//# The sender MUST generate it (MUST-2)
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
//= type=test
//# All TCP Options except End of Option List Option (EOL) and No-Operation (NOP) MUST have length fields, including all
//# future options (MUST-68).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
//= type=test
//# The content of the header beyond the End of Option List Option MUST be header padding of zeros (MUST-69).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.1
//= type=test
//# TCP implementations SHOULD send an MSS Option in every SYN segment when its receive MSS differs from the default 536
//# for IPv4 or 1220 for IPv6 (SHLD-5),
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.2
//= type=test
//# and MUST NOT be sent in other segments (MUST-65).
#[test]
fn checksums_and_options_of_every_segment_are_as_they_must_be() {
    for (name, seen) in everything() {
        for sent in seen.iter().filter(|seen| seen.outbound) {
            let pseudo = checksum::pseudo_header(sent.src, sent.dst, protocol::TCP, sent.segment.len() as u32);
            assert_eq!(pseudo.add(checksum::sum(&sent.segment)).finish(), 0, "{name}: the checksum");
            let options = sent.options().unwrap_or_else(|error| panic!("{name}: {error}"));
            let mss = options.iter().filter(|(kind, _)| *kind == 2).count();
            assert_eq!(
                mss,
                usize::from(sent.flags().contains(TcpFlags::SYN)),
                "{name}: MSS options of {:?}",
                sent.flags()
            );
        }
    }
}

/// The edge moves back by less than a unit of the window field, which is due to the rounding of scaled windows.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6
//= type=test
//# A TCP receiver SHOULD NOT shrink the window, i.e., move the right window edge to the left (SHLD-14).
#[test]
fn the_right_edge_never_goes_back_by_a_unit_of_the_window() {
    for (name, seen) in everything() {
        let mut shifts: HashMap<_, Option<u8>> = HashMap::new();
        let mut edges: HashMap<_, (u32, u8)> = HashMap::new();
        for seen in &seen {
            let [from, to] = seen.ends();
            let flags = seen.flags();
            // A later SYN is an old or foreign one, and negotiates nothing.
            if flags.contains(TcpFlags::SYN) && !edges.contains_key(&(to, from)) {
                let shift = seen.option(3).map(|value| value[0].min(14));
                shifts.insert((from, to), shift);
                if seen.outbound {
                    edges.remove(&(from, to));
                }
            }
            if !seen.outbound || !flags.contains(TcpFlags::ACK) || flags.contains(TcpFlags::RST) {
                continue;
            }
            let agreed = [(from, to), (to, from)].map(|way| shifts.get(&way).copied().flatten());
            let scaled = agreed[1].and(agreed[0]).filter(|_| !flags.contains(TcpFlags::SYN));
            let window = u32::from(u16::from_be_bytes([seen.segment[14], seen.segment[15]]));
            let edge = seen.word(8).wrapping_add(window << scaled.unwrap_or(0));
            if let Some((highest, shift)) = edges.get_mut(&(from, to)) {
                let back = highest.wrapping_sub(edge) as i32;
                let unit = 1 << (*shift).max(scaled.unwrap_or(0));
                assert!(back < unit, "{name}: the edge goes back by {back} bytes, a unit is {unit}");
                if back < 0 {
                    *highest = edge;
                }
            } else {
                edges.insert((from, to), (edge, scaled.unwrap_or(0)));
            }
        }
    }
}
