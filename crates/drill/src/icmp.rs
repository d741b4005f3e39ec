//! ICMP's types and codes by the names of the language.

use crate::script::IcmpSpec;

/// Name of a type, its numbers in ICMP and ICMPv6, and whether its messages quote a packet.
const TYPES: [(&str, Option<u8>, Option<u8>, bool); 7] = [
    ("unreachable", Some(3), Some(1), true),
    ("packet_too_big", None, Some(2), true),
    ("time_exceeded", Some(11), Some(3), true),
    ("parameter_problem", Some(12), Some(4), true),
    ("source_quench", Some(4), None, true),
    ("echo_request", Some(8), Some(128), false),
    ("echo_reply", Some(0), Some(129), false),
];

const UNREACHABLE_V4: [(&str, u8); 13] = [
    ("net_unreachable", 0),
    ("host_unreachable", 1),
    ("protocol_unreachable", 2),
    ("port_unreachable", 3),
    ("frag_needed", 4),
    ("source_route_failed", 5),
    ("net_unknown", 6),
    ("host_unknown", 7),
    ("source_host_isolated", 8),
    ("net_prohibited", 9),
    ("host_prohibited", 10),
    ("net_unreachable_for_tos", 11),
    ("packet_filtered", 13),
];

const UNREACHABLE_V6: [(&str, u8); 5] = [
    ("no_route", 0),
    ("admin_prohibited", 1),
    ("not_neighbour", 2),
    ("address_unreachable", 3),
    ("port_unreachable", 4),
];

fn codes(v4: bool) -> &'static [(&'static str, u8)] {
    if v4 { &UNREACHABLE_V4 } else { &UNREACHABLE_V6 }
}

/// Type and code of a message that a script names.
pub(crate) fn numbers(spec: &IcmpSpec, v4: bool) -> Result<(u8, u8), String> {
    let family = if v4 { "ICMP" } else { "ICMPv6" };
    let known = TYPES.iter().find(|(name, ..)| *name == spec.kind);
    let kind = known.and_then(|(_, four, six, _)| if v4 { *four } else { *six });
    let kind = kind.ok_or_else(|| format!("{family} has no type `{}`", spec.kind))?;
    let Some(code) = &spec.code else { return Ok((kind, 0)) };
    let code = codes(v4).iter().find(|(name, _)| spec.kind == "unreachable" && name == code);
    let code = code.ok_or_else(|| format!("{family} has no code `{}`", spec.code.as_deref().unwrap_or_default()))?;
    Ok((kind, code.1))
}

/// Whether messages of the type quote a packet.
pub(crate) fn quotes(kind: u8, v4: bool) -> bool {
    let number = |(_, four, six, _): &(_, Option<u8>, Option<u8>, bool)| if v4 { *four } else { *six };
    TYPES.iter().any(|entry| number(entry) == Some(kind) && entry.3)
}

/// The message whose first eight bytes these are.
pub(crate) fn spec(fixed: &[u8; 8], v4: bool) -> IcmpSpec {
    let [kind, code, _, _, a, b, c, d] = *fixed;
    let named = TYPES.iter().find(|(_, four, six, _)| (if v4 { *four } else { *six }) == Some(kind));
    let name = named.map_or_else(|| format!("type_{kind}"), |(name, ..)| (*name).to_owned());
    let code_name = match name.as_str() {
        "unreachable" => codes(v4).iter().find(|(_, number)| *number == code).map(|(name, _)| (*name).to_owned()),
        _ => None,
    };
    let mtu = match (name.as_str(), v4, code) {
        ("unreachable", true, 4) => Some(u32::from(u16::from_be_bytes([c, d]))),
        ("packet_too_big", false, _) => Some(u32::from_be_bytes([a, b, c, d])),
        _ => None,
    };
    let id = name.starts_with("echo").then(|| u16::from_be_bytes([a, b]));
    IcmpSpec { kind: name, code: code_name, mtu, id, quoted: None }
}
