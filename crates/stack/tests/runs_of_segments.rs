//! Segments that wait in a device's queue together are acknowledged together (RFC 9293 section 3.10.7.4), over IPv4 and
//! over IPv6, in plain frames and in frames with a priority tag.

use std::net::{IpAddr, SocketAddr};

use every_arch::every_arch;
use stack::Architecture;
use stack::socket::TcpSocket;
use sync::Real;
use testbed::frames::{self, PEER, STACK, tcp_of};
use testbed::node::{Node, NodeConfig, send};

/// Segments that are queued together: as many as in the initial congestion window.
const SEGMENTS: usize = 10;

/// Both ends, each on its own link; the test carries the frames.
struct Ends {
    client: Node<Real>,
    server: Node<Real>,
}

impl Ends {
    fn new(arch: Architecture) -> Ends {
        let server = Node::new(NodeConfig::new(arch));
        let addresses = vec![(PEER.into(), 24), ("fd00::2".parse().expect("an address"), 64)];
        let client = Node::new(NodeConfig { addresses, second: true, seed: 2, ..NodeConfig::new(arch) });
        Ends { client, server }
    }

    /// Carries frames until none is left.
    fn rest(&mut self) {
        loop {
            let (there, back) = (self.client.settle(), self.server.settle());
            there.iter().for_each(|frame| self.server.put(frame));
            back.iter().for_each(|frame| self.client.put(frame));
            if there.is_empty() && back.is_empty() {
                return;
            }
        }
    }

    fn connect(&mut self, to: IpAddr) -> std::sync::Arc<TcpSocket<Real>> {
        let options = tcp::config::ConnectionOptions { no_delay: true, ..Default::default() };
        let address = SocketAddr::new(to, 80);
        let listener = self.server.stack.listen(address, 8, options.clone()).expect("the port is free");
        let client = self.client.stack.connect(None, address, &options).expect("a port is free");
        self.rest();
        let _ = listener.accept().expect("the handshake is complete");
        client
    }
}

/// With a priority tag and no VLAN (IEEE 802.1Q clause 6.9).
fn tagged(frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &[0x81, 0, 0xa0, 0], &frame[12..]].concat()
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
//= type=test
//# In general, the processing of received segments MUST be implemented to aggregate ACK segments whenever possible
//# (MUST-58).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
//= type=test
//# For example, if the TCP endpoint is processing a series of queued segments, it MUST process them all before sending
//# any ACK segments (MUST-59).
//
// A pool of workers is given one segment at a time, and has no series of them.
#[every_arch(except(msgp_pool))]
fn ten_segments_queued_at_once_get_one_acknowledgement(arch: Architecture) {
    for (to, acknowledged, end) in acknowledgements_of_ten(arch) {
        assert_eq!(acknowledged, [end], "{to}");
    }
}

/// Any worker may take the next segment, so the pool never sees a run: every second segment is acknowledged.
#[every_arch(only(msgp_pool))]
fn a_pool_is_given_no_runs(arch: Architecture) {
    for (to, acknowledged, end) in acknowledgements_of_ten(arch) {
        assert!(acknowledged.len() >= SEGMENTS / 2, "{to}: {acknowledged:?}");
        assert_eq!(acknowledged.last(), Some(&end), "{to}");
    }
}

/// Ten segments queued at once, with and without a VLAN tag: the address that they are sent to, the acknowledgements, and
/// the end of the last segment.
fn acknowledgements_of_ten(arch: Architecture) -> Vec<(IpAddr, Vec<u32>, u32)> {
    let mut all = Vec::new();
    for to in [IpAddr::V4(STACK), "fd00::1".parse().expect("an address")] {
        for tag in [false, true] {
            let mut ends = Ends::new(arch);
            let client = ends.connect(to);
            ends.client.call(&client, send(&[7; SEGMENTS * 1448]));
            let queued = ends.client.settle();
            let queued: Vec<_> = queued.iter().filter(|frame| !frames::is_arp(frame)).collect();
            assert!(queued.len() >= SEGMENTS, "{to}: {} frames", queued.len());
            let end = queued
                .iter()
                .filter_map(|frame| tcp_of(frame))
                .map(|(h, data)| h.seq.0.wrapping_add(data.len() as u32))
                .next_back()
                .expect("segments");
            for frame in &queued {
                ends.server.put(&if tag { tagged(frame) } else { frame.to_vec() });
            }
            let answers = ends.server.settle();
            let acknowledged: Vec<_> = answers.iter().filter_map(|frame| tcp_of(frame)).map(|(h, _)| h.ack.0).collect();
            all.push((to, acknowledged, end));
        }
    }
    all
}
