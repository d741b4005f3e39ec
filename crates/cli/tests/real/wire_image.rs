//! The wire image: on a link without loss tshark has no remarks, neither on Heddle's own recording nor on tcpdump's on
//! the other side.
//!
//! One queue, no offloads: frames as they are on a cable, in one order. With two queues, and with offloads, only the
//! other side's recording can be evaluated, with the exceptions noted there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;

use heddle::ALL_ARCHITECTURES;

use crate::capture::{Capture, complaints, frames, stumbles};
use crate::lossy::{cable, carry, queues};
use crate::namespace::{INTERFACE, KERNEL_V4, KERNEL_V6, Namespace, OURS_V4, OURS_V6, in_namespace, second_namespace};
use crate::process::{output, run};
use crate::relaying::Relaying;
use crate::serving::{Serving, Site, curl};
use crate::{MIB, full, namespace, programs};

/// Heddle with these queues and offloads. Its time-outs are long, like those that [`patient`] sets in the kernel.
const fn cabled(queues: &'static str, offload: &'static str) -> [&'static str; 10] {
    let [probes, least] = ["tcp_early_retrans=0", "tcp_rto_min_us=1000000"];
    ["--queues", queues, "--threads", "2", "--offload", offload, "--sysctl", probes, "--sysctl", least]
}
/// The architectures that are tested in every run.
const LOOKED_AT: [&str; 4] = ["connp-l:128", "connp-t:spsc", "msgp:6", "squeue:process"];

fn archs() -> &'static [&'static str] {
    if full() { &ALL_ARCHITECTURES } else { &LOOKED_AT }
}

/// Sets the kernel's loss time-outs to ten seconds: a tail loss probe, or a time-out of 200 ms on a busy machine, would
/// only show that Heddle was not running on a CPU.
fn patient() {
    namespace::set("ipv4/tcp_early_retrans", "0");
    // IPv6 prefers the route of the lower metric; for IPv4 there cannot be a lower one.
    for route in ["change 10.9.0.0/24", "add fd09::/64 metric 1"] {
        let words = format!("ip route {route} dev {INTERFACE} rto_min 10s");
        run(&words.split(' ').collect::<Vec<_>>());
    }
}

/// Asserts that tshark has no remark on a recording, which must have at least `least` frames with data.
fn spotless(file: &str, least: usize, what: &str) {
    let remarks = complaints(file);
    let shown = remarks.iter().take(20).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(remarks.is_empty(), "{what}: {file}: {} remarks:\n{shown}", remarks.len());
    let data = frames(file, "tcp.len > 0").len();
    assert!(data >= least, "{what}: {file}: {data} frames with text");
}

// A namespace for each architecture: a new process has new initial sequence numbers, and must not meet the kernel's
// TIME-WAIT state of the one before.

#[test]
fn tshark_has_no_remark_on_our_server() {
    for arch in archs() {
        in_namespace(&["tshark", "tcpdump", "curl", "ab"], move |space| {
            let site = space.site(4 * MIB);
            let ours = site.path("ours.pcapng");
            let theirs = serve(space, &site, arch, &[&cabled("1", "none")[..], &["--pcap", &ours]].concat());
            // Twice 4 MiB in both families, in segments of 1448 bytes and less.
            for file in [ours, theirs] {
                spotless(&file, 10_000, arch);
            }
        });
    }
}

/// The kernel opens a connection on two queues: it learns our queue from the SYN,ACK, but only after it has answered
/// that. The request may then overtake the end of the handshake, which is then old and answered with a duplicate ACK.
/// (In Heddle's own recording the order is reversed.) Rarely, on an overloaded machine, the thread of the other queue
/// processes it only in the middle of an upload.
#[test]
fn tshark_has_one_remark_on_two_queues() {
    for arch in SEVERAL {
        in_namespace(&["tshark", "tcpdump", "curl", "ab"], move |space| {
            let theirs = serve(space, &space.site(4 * MIB), arch, &cabled("2", "none"));
            let late =
                format!("tcp.analysis.duplicate_ack_num == 1 && tcp.len == 0 && !tcp.options.sack_le && ({OURS})");
            let remarks = stumbles(&theirs, &late);
            assert!(remarks.is_empty(), "{arch}: {}", remarks.join("\n"));
            let amid = frames(&theirs, &format!("{late} && tcp.ack >= 20000"));
            assert!(amid.len() <= 1, "{arch}: {}", amid.join("\n"));
            let wrong = frames(&theirs, &format!("(tcp.checksum.status == 0 || ip.checksum.status == 0) && ({OURS})"));
            assert!(wrong.is_empty(), "{arch}: {}", wrong.join("\n"));
        });
    }
}

/// With offloads checksums are unfinished and segments have up to 64 KiB, so that only their sequence numbers can be
/// checked.
#[test]
fn tshark_has_no_remark_on_super_segments() {
    for arch in SEVERAL {
        in_namespace(&["tshark", "tcpdump", "curl", "ab"], move |space| {
            let theirs = serve(space, &space.site(4 * MIB), arch, &cabled("1", "all"));
            let remarks = stumbles(&theirs, "frame.number == 0");
            assert!(remarks.is_empty(), "{arch}: {}", remarks.join("\n"));
            let large = frames(&theirs, "tcp.len > 3000");
            assert!(large.len() > 100, "{arch}: {} super-segments", large.len());
        });
    }
}

/// Frames that Heddle has sent.
const OURS: &str = "ip.src == 10.9.0.2 || ipv6.src == fd09::2";
/// The architectures that are tested with two queues, and with offloads.
const SEVERAL: [&str; 4] = ["connp-l:128", "msgp:2", "squeue:process", "connp-t:spsc"];

/// Serves a large file and many small ones, and receives a large one; returns tcpdump's recording of the interface.
fn serve(space: &Namespace, site: &Site, arch: &str, cable: &[&str]) -> String {
    let serving = Serving::start(space, site, arch, cable);
    let theirs = exercise(&serving, site, arch);
    serving.stop();
    theirs
}

/// Clients of a server, in the namespace of the calling thread; returns the recording of the interface there.
fn exercise(serving: &Serving, site: &Site, arch: &str) -> String {
    patient();
    let capture = Capture::start(INTERFACE, &site.path("theirs.pcap"));
    for host in [OURS_V4, OURS_V6] {
        assert_eq!(curl(&[&serving.url(host, "big")]), site.big, "{arch}: down from {host}");
        let words = ["curl", "-sSf", "-m", "120", "--data-binary", &site.big_at(), &serving.url(host, "x")];
        assert!(output(&words).contains(&site.big), "{arch}: up to {host}");
        for keep_alive in [&["-k"][..], &[]] {
            let url = serving.url(host, "index.html");
            run(&[&["ab", "-q", "-n", "300", "-c", "10", "-s", "60"][..], keep_alive, &[&url]].concat());
        }
    }
    capture.stop()
}

/// Heddle leaves checksums and segmentation to the kernel, which must do them for an interface without offloads: over a
/// bridge, to the kernel of a second namespace at the end of a cable. There every frame of both sides is checked.
#[test]
fn tshark_has_no_remark_on_what_is_left_to_the_kernel() {
    for arch in SEVERAL {
        in_namespace(&["tshark", "tcpdump", "curl", "ab"], move |space| {
            let site = space.site(4 * MIB);
            let near = queues(bridge());
            let serving = Serving::start(space, &site, arch, &cabled("1", "all"));
            let (ready, far) = channel();
            let (stop, place) = (AtomicBool::new(false), &site);
            let theirs = std::thread::scope(|scope| {
                let clients = scope.spawn(move || {
                    second_namespace(KERNEL_V4, KERNEL_V6);
                    ready.send(cable(INTERFACE)).expect("somebody waits");
                    let theirs = exercise(&serving, place, arch);
                    serving.stop();
                    theirs
                });
                let far = queues(far.recv().expect("the other end"));
                scope.spawn(|| carry(near.0, far.1, &stop));
                scope.spawn(|| carry(far.0, near.1, &stop));
                let theirs = clients.join();
                stop.store(true, Ordering::Relaxed);
                theirs.expect("the clients are served")
            });
            spotless(&theirs, 10_000, arch);
        });
    }
}

/// Joins Heddle's interface by a bridge with one without offloads; returns the latter's other end.
fn bridge() -> heddle::tap::Tap {
    let end = cable("far0");
    for words in [
        "addr flush dev tap0",
        "link add br0 type bridge mcast_snooping 0",
        "link set far0 txqueuelen 20000",
        "link set far0 master br0",
        "link set tap0 master br0",
        "link set br0 up",
    ] {
        run(&std::iter::once("ip").chain(words.split(' ')).collect::<Vec<_>>());
    }
    end
}

#[test]
fn tshark_has_no_remark_on_our_relay() {
    for arch in archs() {
        let programs = ["tshark", "tcpdump", "curl", "nginx", "ab"];
        in_namespace(&programs, |space| relay_and_look(space, &space.site(4 * MIB), arch));
    }
}

fn relay_and_look(space: &Namespace, site: &Site, arch: &str) {
    patient();
    let nginx = programs::nginx(site);
    let (ours, theirs) = (site.path("ours.pcapng"), site.path("theirs.pcap"));
    let capture = Capture::start(INTERFACE, &theirs);
    let relaying = Relaying::start(space, nginx.port, arch, &[&cabled("1", "none")[..], &["--pcap", &ours]].concat());
    for target in relaying.targets() {
        assert_eq!(curl(&[&target.url("big")]), site.big, "{arch}: {target:?}");
        for keep_alive in [&["-k"][..], &[]] {
            let url = target.url("index.html");
            run(&[&["ab", "-q", "-n", "200", "-c", "10", "-s", "60"][..], keep_alive, &[&url]].concat());
        }
    }
    let theirs = capture.stop();
    relaying.stop();
    for file in [ours, theirs] {
        spotless(&file, 10_000, arch);
    }
}
