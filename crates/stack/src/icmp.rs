//! The meaning for a TCP connection of an ICMP error that IP passes up.

use ip::icmp::IcmpMeaning;
use ip::path_mtu::Estimate;
use tcp::IcmpKind;

/// The meaning of an ICMP error for a TCP connection.
pub(crate) enum IcmpReport {
    /// Its segment was not delivered.
    Error(tcp::IcmpError),
    /// Its segment was too large for the path; the new estimate of the path MTU.
    TooBig(tcp::PathMtu, Estimate),
    /// Nothing.
    Nothing,
}

/// Interprets an ICMP error about a TCP segment. `estimate` evaluates a reported path MTU.
pub(crate) fn report(
    error: &ip::ReceivedIcmpError,
    estimate: impl FnOnce(&ip::ReceivedIcmpError, u32) -> Option<Estimate>,
) -> IcmpReport {
    let Some(seq) = error.seq.filter(|_| error.protocol == wire::protocol::TCP) else { return IcmpReport::Nothing };
    let kind = match error.meaning() {
        IcmpMeaning::PacketTooBig { mtu } => {
            let Some(path) = estimate(error, mtu) else { return IcmpReport::Nothing };
            let mss = tcp::mss::in_packet(path.mtu.into(), error.tuple.remote_addr);
            return IcmpReport::TooBig(tcp::PathMtu { mss, seq: Some(seq) }, path);
        }
        IcmpMeaning::Refused => IcmpKind::PortUnreachable,
        IcmpMeaning::NetworkUnreachable => IcmpKind::NetworkUnreachable,
        IcmpMeaning::HostUnreachable => IcmpKind::HostUnreachable,
        IcmpMeaning::Transient => IcmpKind::Transient,
    };
    IcmpReport::Error(tcp::IcmpError { kind, seq })
}
