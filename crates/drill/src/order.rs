//! One order for traces that several architectures may produce in different orders.
//!
//! When the clock moves, timers of several connections may expire at one instant. RFC 9293 orders the segments of one
//! connection and does not define an order between connections. One timer wheel serves all connections under `up`; each
//! cell has its own under `connp-t`, `conn-thread`, `connp-l`, `squeue` and `shared-nothing`, and cells of a running
//! stack are served by threads that do not wait for each other. So the architectures would have to order connections at
//! every tick, at a cost, only for the comparison. The comparison therefore orders such frames itself: by connection,
//! and within a connection as they were sent.
//!
//! Only these frames are reordered. Frames that follow a packet or a call of the script are compared in the order in
//! which they were sent, also if several connections send at one instant.

use std::net::IpAddr;

use wire::ethernet;
use wire::ipv4;

use crate::frame::{self, Payload};
use crate::host::Crossing;

/// The connection of a frame: the addresses and ports of its source and its destination.
type Flow = (IpAddr, IpAddr, (u16, u16));

/// The trace with the frames that timers sent at one instant sorted by connection. Frames of no connection (ARP,
/// neighbour discovery, ICMP) come first, sorted by their bytes.
pub(crate) fn canonical(trace: &[Crossing]) -> Vec<Crossing> {
    let together = |a: &Crossing, b: &Crossing| a.by_timer && b.by_timer && a.at == b.at;
    trace.chunk_by(together).flat_map(sorted).collect()
}

fn sorted(burst: &[Crossing]) -> Vec<Crossing> {
    if let [one] = burst {
        return vec![one.clone()];
    }
    let mut frames: Vec<_> = burst.iter().map(|crossing| (flow(&crossing.frame), crossing.clone())).collect();
    let first = frames[0].0;
    if frames.iter().any(|(flow, _)| *flow != first) {
        frames.iter_mut().for_each(|(_, crossing)| clear_identification(&mut crossing.frame));
    }
    frames.sort_by(|(a, one), (b, other)| match (a, b) {
        (None, None) => one.frame.cmp(&other.frame),
        _ => a.cmp(b),
    });
    frames.into_iter().map(|(_, crossing)| crossing).collect()
}

fn flow(bytes: &[u8]) -> Option<Flow> {
    let (ip, payload) = frame::read(bytes).ok()?;
    match payload {
        Payload::Tcp(segment) => Some((ip.src, ip.dst, segment.ports)),
        Payload::Udp { ports, .. } => Some((ip.src, ip.dst, ports)),
        Payload::Icmp(_) | Payload::Other(_) => None,
    }
}

/// Identifications of IPv4 packets that may be fragmented are assigned in the order of sending (RFC 6864), and the
/// header's checksum covers them: both depend on the order that is removed here.
fn clear_identification(bytes: &mut [u8]) {
    const LINK: usize = ethernet::HEADER_LEN;
    if bytes.get(12..LINK) == Some(&[8, 0]) && bytes.len() >= LINK + ipv4::HEADER_LEN {
        bytes[LINK + 4..LINK + 6].fill(0);
        bytes[LINK + 10..LINK + 12].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wire::ethernet::MacAddr;

    use super::*;
    use crate::frame::{Ip, Tcp};

    /// A segment of the stack to `port`.
    fn segment(port: u16, seq: u32) -> Vec<u8> {
        let ip = Ip { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into(), tos: 0, ttl: 64, flow_label: 0 };
        let tcp =
            Tcp { ports: (80, port), flags: 0x10, seq, ack: 1, window: 1, urgent: 0, options: vec![], data: vec![] };
        frame::tcp((MacAddr([2; 6]), MacAddr([4; 6])), &ip, &tcp).expect("a frame")
    }

    fn sent(at: u64, by_timer: bool, frame: Vec<u8>) -> Crossing {
        Crossing { at: Duration::from_millis(at), outbound: true, by_timer, frame }
    }

    fn timer(at: u64, port: u16, seq: u32) -> Crossing {
        sent(at, true, segment(port, seq))
    }

    #[test]
    fn timers_of_several_connections_at_one_instant_have_one_order() {
        let one = [timer(200, 1001, 7), timer(200, 1002, 9), timer(200, 1001, 8)];
        let other = [timer(200, 1002, 9), timer(200, 1001, 7), timer(200, 1001, 8)];
        assert_eq!(canonical(&one), canonical(&other));
    }

    #[test]
    fn the_order_within_a_connection_counts() {
        let one = [timer(200, 1001, 7), timer(200, 1002, 9), timer(200, 1001, 8)];
        let other = [timer(200, 1001, 8), timer(200, 1002, 9), timer(200, 1001, 7)];
        assert_ne!(canonical(&one), canonical(&other));
    }

    #[test]
    fn the_order_of_two_instants_counts() {
        let one = [timer(200, 1001, 7), timer(201, 1002, 9)];
        let other = [timer(200, 1002, 9), timer(201, 1001, 7)];
        assert_ne!(canonical(&one), canonical(&other));
    }

    #[test]
    fn the_order_of_what_no_timer_sent_counts() {
        let one = [sent(200, false, segment(1001, 7)), sent(200, false, segment(1002, 9))];
        let other = [one[1].clone(), one[0].clone()];
        assert_ne!(canonical(&one), canonical(&other));
    }

    #[test]
    fn a_frame_that_is_missing_or_doubled_counts() {
        let whole = [timer(200, 1001, 7), timer(200, 1002, 9)];
        assert_ne!(canonical(&whole), canonical(&whole[..1]));
        let doubled = [whole[0].clone(), whole[0].clone(), whole[1].clone()];
        assert_ne!(canonical(&whole), canonical(&doubled));
    }

    #[test]
    fn identifications_follow_the_order_and_are_left_out() {
        let numbered = |mut crossing: Crossing, identification: u8| {
            crossing.frame[19] = identification;
            let header = ethernet::HEADER_LEN..ethernet::HEADER_LEN + ipv4::HEADER_LEN;
            crossing.frame[24..26].fill(0);
            let sum = wire::checksum::sum(&crossing.frame[header]).finish();
            crossing.frame[24..26].copy_from_slice(&sum.to_be_bytes());
            crossing
        };
        let one = [numbered(timer(200, 1001, 7), 1), numbered(timer(200, 1002, 9), 2)];
        let other = [numbered(timer(200, 1002, 9), 1), numbered(timer(200, 1001, 7), 2)];
        assert_eq!(canonical(&one), canonical(&other));
        let alone = [numbered(timer(200, 1001, 7), 1), numbered(timer(200, 1001, 8), 2)];
        assert_eq!(canonical(&alone), alone, "with one connection there is one order");
    }
}
