//! What an ICMP error that IP passes up means to a TCP connection.

use ip::icmp::IcmpMeaning;
use ip::path_mtu::Estimate;
use tcp::IcmpKind;

/// What an ICMP error means to a TCP connection.
pub enum IcmpReport {
    /// Its segment was not delivered.
    Error(tcp::IcmpError),
    /// Its segment was too large for the path, of which this is believed now.
    TooBig(tcp::PathMtu, Estimate),
    /// Nothing.
    Nothing,
}

/// Reads an ICMP error about a TCP segment. `estimate` says what a report of the path's MTU is worth, if anything.
pub fn report(error: &ip::IcmpError, estimate: impl FnOnce(&ip::IcmpError, u32) -> Option<Estimate>) -> IcmpReport {
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
