//! Attributes of routes, as visible in the packets sent.

use std::net::SocketAddr;
use std::time::Duration;

use heddle_drill::host::{Addresses, Host, HostConfig, START};
use stack::Architecture;
use stack::socket::TcpSocket;
use sync::Real;
use tcp::ConnectionOptions;

fn host(route: &str) -> Host {
    let terms = HostConfig {
        arch: Architecture::named("up"),
        tcp: tcp::Config::default(),
        addresses: Addresses::V4,
        mtu: 1500,
        super_segments: false,
    };
    let host = Host::new(terms).expect("a host");
    host.stack.state_route(&route.parse().expect("a route"), 0);
    host
}

fn connect(host: &Host) -> std::sync::Arc<TcpSocket<Real>> {
    let remote = SocketAddr::new(Addresses::V4.remote, 80);
    host.stack.connect(None, remote, &ConnectionOptions::default()).expect("a SYN")
}

/// Headers of the SYN and of its retransmissions.
fn syns(host: &mut Host, count: usize) -> Vec<wire::ipv4::Header> {
    let mut headers = Vec::new();
    for second in 0..60 {
        host.set_time(START + Duration::from_secs(second));
        host.settle();
        while let Some((_, packet)) = host.take_packet() {
            headers.push(wire::ipv4::parse(&packet).expect("a packet"));
        }
    }
    headers.truncate(count);
    headers
}

/// With a locked MTU there is no path MTU discovery: routers may fragment packets, so every packet has its own
/// identification (RFC 6864).
#[test]
fn packets_may_be_cut_on_a_path_whose_mtu_is_locked_and_on_no_other() {
    let mut locked = host("192.0.2.0/24 via 192.168.0.2 mtu lock 1400");
    let _held = connect(&locked);
    let seen = syns(&mut locked, 3);
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|header| !header.dont_fragment), "{seen:?}");
    assert!(seen.windows(2).all(|pair| pair[0].ident != pair[1].ident), "{seen:?}");

    let mut found = host("192.0.2.0/24 via 192.168.0.2 mtu 1400");
    let _held = connect(&found);
    let seen = syns(&mut found, 3);
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|header| header.dont_fragment && header.ident == 0), "{seen:?}");
}
