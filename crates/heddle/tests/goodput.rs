//! Goodput against loss and round-trip time, in virtual time: a table that shows reviewers the effect of changes to
//! loss recovery or congestion control.
//!
//! The link carries 1 Gbit/s; only data is lost, not acknowledgements. The last column is Linux 6.18 with CUBIC over a
//! pair of virtual interfaces with the same loss (round-trip time near 0, no rate limit). It is comparable with the
//! first column where loss and not the link is the limit, at 5 % and above.

mod world;

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use heddle::{Connect, TcpListener};
use world::{World, WorldConfig};

/// Each figure is measured over this much data or time, whichever ends first.
const BYTES: usize = 4 << 20;
const TIME: Duration = Duration::from_secs(60);
/// Per mille of frames, and Linux's goodput in Mbit/s.
const LOSSES: [(u32, Option<f64>); 7] = [
    (0, Some(3820.0)),
    (1, None),
    (10, Some(4486.0)),
    (50, Some(156.0)),
    (100, Some(14.0)),
    (200, Some(1.2)),
    (300, Some(0.5)),
];
/// In tenths of a millisecond.
const ROUND_TRIPS: [u32; 5] = [1, 100, 500, 1000, 3000];

/// Mbit/s from `b` to `a`.
fn goodput(per_mille: u32, round_trip: u32) -> f64 {
    let way = round_trip * 50;
    let faults = format!("in loss {}.{}% both delay {way}us rate 1gbit limit 4096", per_mille / 10, per_mille % 10);
    let arch = "up".parse().expect("a plan");
    let faults = faults.parse().expect("a fault plan");
    let mut world = World::on(WorldConfig { faults, ..WorldConfig::new([arch; 2]) });
    let listener = TcpListener::bind(&world.a, "10.0.0.1:80").expect("the port is free");
    listener.set_nonblocking(true).unwrap();
    let mut client = Connect::new().start(&world.b, "10.0.0.1:80").unwrap();
    let mut server = None;
    let (mut begun, mut received) = (world.clock.now(), 0);
    let (block, mut buffer) = (vec![7; 1 << 16], vec![0; 1 << 16]);
    loop {
        if server.is_none()
            && let Ok((stream, _)) = listener.accept()
        {
            stream.set_nonblocking(true).unwrap();
            (server, begun) = (Some(stream), world.clock.now());
        }
        while client.write(&block).is_ok() {}
        if let Some(server) = &mut server {
            loop {
                match server.read(&mut buffer) {
                    Ok(count) => received += count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => panic!("{error}"),
                }
            }
            let took = world.clock.now() - begun;
            if received >= BYTES || took >= TIME {
                return received as f64 * 8e-6 / took.as_secs_f64();
            }
        }
        world.settle();
        let end = world.clock.now() + TIME;
        world.step(end);
    }
}

/// Three significant digits.
fn rounded(mbps: f64) -> String {
    let decimals = if mbps >= 99.95 {
        0
    } else if mbps >= 9.995 {
        1
    } else {
        2
    };
    format!("{mbps:.decimals$}")
}

#[test]
fn against_loss_and_round_trip_time() {
    let mut table = String::from("Mbit/s     rtt");
    for round_trip in ROUND_TRIPS {
        let _ = write!(table, "{:>10}", format!("{} ms", f64::from(round_trip) / 10.0));
    }
    table += "     Linux\n";
    for (per_mille, linux) in LOSSES {
        let _ = write!(table, "loss {:>7} %", f64::from(per_mille) / 10.0);
        for round_trip in ROUND_TRIPS {
            let _ = write!(table, "{:>10}", rounded(goodput(per_mille, round_trip)));
        }
        let _ = writeln!(table, "{:>10}", linux.map_or("-".to_owned(), rounded));
    }
    insta::assert_snapshot!(table);
}
