//! What an ICMP error that IP passes up means to a TCP connection.

use ip::icmp::IcmpErrorKind;
use ip::path_mtu::Estimate;
use tcp::IcmpKind;

use crate::shared::text_in;

/// What an ICMP error means to a TCP connection.
pub enum Report {
    /// Its segment was not delivered.
    Error(tcp::IcmpError),
    /// Its segment was too large for the path, of which this is believed now.
    TooBig(tcp::PathMtu, Estimate),
    /// Nothing.
    Nothing,
}

/// Reads an ICMP error about a TCP segment. `estimate` says what a report of the path's MTU is worth, if anything.
pub fn report(error: &ip::IcmpError, estimate: impl FnOnce(&ip::IcmpError, u32) -> Option<Estimate>) -> Report {
    let Some(seq) = error.seq.filter(|_| error.protocol == wire::protocol::TCP) else { return Report::Nothing };
    let kind = match error.kind {
        IcmpErrorKind::PacketTooBig { mtu } => {
            let Some(path) = estimate(error, mtu) else { return Report::Nothing };
            let mss = text_in(path.mtu.into(), error.tuple.remote_addr);
            return Report::TooBig(tcp::PathMtu { mss, seq: Some(seq) }, path);
        }
        _ if error.is_refusal() => IcmpKind::PortUnreachable,
        IcmpErrorKind::Unreachable { code: 0 } => IcmpKind::NetworkUnreachable,
        IcmpErrorKind::Unreachable { .. } => IcmpKind::HostUnreachable,
        _ => IcmpKind::Transient,
    };
    Report::Error(tcp::IcmpError { kind, seq })
}
