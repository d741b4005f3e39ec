//! What other people see of us on the wire: on a link without loss tshark finds nothing to remark, neither in Heddle's
//! own recording nor in tcpdump's on the other side.
//!
//! One queue, no offloads: frames as they are on a cable, in one order. (With several queues the kernel sends the first
//! segments of a connection on two of them, for it learns only then which queue is ours; they overtake each other.)

use heddle::ALL_PLANS;

use crate::capture::{Capture, complaints, frames};
use crate::namespace::{INTERFACE, Namespace, OURS_V4, OURS_V6, in_namespace};
use crate::process::{output, run};
use crate::relaying::Relaying;
use crate::serving::{Serving, Site, curl};
use crate::{MIB, full, programs};

const CABLE: [&str; 6] = ["--queues", "1", "--threads", "2", "--offload", "none"];
/// The architectures that are looked at in every run.
const LOOKED_AT: [&str; 4] = ["connp-l:128", "connp-t:spsc", "msgp:6", "squeue:process"];

fn archs() -> &'static [&'static str] {
    if full() { &ALL_PLANS } else { &LOOKED_AT }
}

/// Has the kernel wait for the retransmission time-out before it believes that something was lost: a tail loss probe, a
/// few milliseconds after the segment, tells only that Heddle was not running on a CPU.
fn patient(space: &Namespace) {
    space.set("ipv4/tcp_early_retrans", "0");
}

/// Asserts that tshark has no remark on a recording, which must have at least `least` frames with text.
fn spotless(file: &str, least: usize, what: &str) {
    let remarks = complaints(file);
    let shown = remarks.iter().take(20).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(remarks.is_empty(), "{what}: {file}: {} remarks:\n{shown}", remarks.len());
    let text = frames(file, "tcp.len > 0").len();
    assert!(text >= least, "{what}: {file}: {text} frames with text");
}

// A namespace for each architecture: a new process has new initial sequence numbers, and must not meet what the kernel
// still remembers of the one before (TIME-WAIT).

#[test]
fn tshark_has_no_remark_on_our_server() {
    for arch in archs() {
        in_namespace(&["tshark", "tcpdump", "curl", "ab"], |space| serve_and_look(space, &space.site(4 * MIB), arch));
    }
}

fn serve_and_look(space: &Namespace, site: &Site, arch: &str) {
    patient(space);
    let (ours, theirs) = (site.path("ours.pcapng"), site.path("theirs.pcap"));
    let capture = Capture::start(INTERFACE, &theirs);
    let serving = Serving::start(space, site, arch, &[&CABLE[..], &["--pcap", &ours]].concat());
    for host in [OURS_V4, OURS_V6] {
        assert_eq!(curl(&[&serving.url(host, "big")]), site.big, "{arch}: down from {host}");
        let words = ["curl", "-sSf", "-m", "120", "--data-binary", &site.big_at(), &serving.url(host, "x")];
        assert!(output(&words).contains(&site.big), "{arch}: up to {host}");
        for keep_alive in [&["-k"][..], &[]] {
            let url = serving.url(host, "index.html");
            run(&[&["ab", "-q", "-n", "300", "-c", "10", "-s", "60"][..], keep_alive, &[&url]].concat());
        }
    }
    let theirs = capture.stop();
    serving.stop();
    // Twice 4 MiB in both families, in segments of 1448 bytes and less.
    for file in [ours, theirs] {
        spotless(&file, 10_000, arch);
    }
}

#[test]
fn tshark_has_no_remark_on_our_relay() {
    for arch in archs() {
        let programs = ["tshark", "tcpdump", "curl", "nginx", "ab"];
        in_namespace(&programs, |space| relay_and_look(space, &space.site(4 * MIB), arch));
    }
}

fn relay_and_look(space: &Namespace, site: &Site, arch: &str) {
    patient(space);
    let nginx = programs::nginx(site);
    let (ours, theirs) = (site.path("ours.pcapng"), site.path("theirs.pcap"));
    let capture = Capture::start(INTERFACE, &theirs);
    let relaying = Relaying::start(space, nginx.port, arch, &[&CABLE[..], &["--pcap", &ours]].concat());
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
