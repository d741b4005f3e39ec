//! What `heddle serve` owes its operator: totals that are true, requests that are refused as HTTP says, limits for each
//! client, counters of a running service, and no more rights than it needs.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::namespace::{OURS_V4, OURS_V6, in_namespace};
use crate::process::PATIENCE;
use crate::serving::Serving;

const MIB: usize = 1 << 20;

/// A field of the JSON object that a service prints at its end.
fn field(ended: &str, name: &str) -> u64 {
    let ended: serde_json::Value = serde_json::from_str(ended).expect("one JSON object");
    ended[name].as_u64().unwrap_or_else(|| panic!("no number {name} in {ended}"))
}

/// Sends `request` to port 80 and reads to the end of the connection.
fn exchange(host: &str, request: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect((host, 80)).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    stream.write_all(request.as_bytes()).expect("written");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer and its end");
    answer
}

#[test]
fn totals_count_what_was_sent_and_not_what_was_promised() {
    in_namespace(&[], |space| {
        for arch in heddle::ALL_PLANS {
            let site = space.site(16 * MIB);
            let serving = Serving::start(space, &site, arch, &[]);
            let request = "GET /big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            let mut exact = 0;
            for host in [OURS_V4, OURS_V6] {
                exact += exchange(host, request).len() as u64;
                // A client that reads the first bytes of its answer and then no more.
                let mut idle = TcpStream::connect((host, 80)).expect("a connection");
                idle.write_all(request.as_bytes()).expect("written");
                idle.read_exact(&mut [0; 1000]).expect("the first bytes");
            }
            let ended = serving.stop();
            let counted = field(&ended, "bytes_out");
            assert!(counted >= exact, "{arch}: {counted} of {exact} bytes that arrived were counted");
            let idle = counted - exact;
            assert!(
                idle < 16 * MIB as u64,
                "{arch}: {idle} bytes for two clients that took no more than their buffers"
            );
            assert_eq!(field(&ended, "bytes_in"), 4 * request.len() as u64, "{arch}: {ended}");
        }
    });
}
