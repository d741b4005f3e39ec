//! The reaction of an open connection to a router's report of a packet too large, for all interesting MTUs, under every
//! architecture, over IPv4, IPv4-mapped addresses and IPv6.
//!
//! The numbers are those of RFC 1191 sections 5 and 7.1, of RFC 8201 section 4, and of the floor in `SECURITY.md`.

use heddle_drill::check::check;
use heddle_drill::run::Options;
use stack::{ALL_ARCHITECTURES, Architecture};

/// Sizes of the IP and TCP headers together.
const V4: u32 = 40;
const V6: u32 = 60;

fn goes_through(name: &str, script: &str) {
    let architectures: Vec<Architecture> = ALL_ARCHITECTURES.iter().map(|name| name.parse().expect("a plan")).collect();
    let fault = check(script, &architectures, &Options::new(architectures[0]), &[]).fault;
    assert!(fault.is_none(), "{name}: {:?}\n{script}", fault.map(|fault| fault.error));
}

/// A connection to a peer with an MSS of `mss` bytes has sent one segment, and `report` is about it.
fn reported(version: &str, link: (u32, u32), mss: u32, report: &str, then: &str) -> String {
    let (mtu, headers) = link;
    let ours = mtu - headers;
    format!(
        "--ip_version={version}
--mtu={mtu}
--strict_segments
--no_leftovers
`./defaults.sh`
0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 bind(3, ..., ...) = 0
+0 listen(3, 1) = 0
+0 < S 0:0(0) win 65535 <mss {mss}>
+0 > S. 0:0(0) ack 1 <mss {ours}>
+.01 < . 1:1(0) ack 1 win 65535
+0 accept(3, ..., ...) = 4
+0 write(4, ..., {mss}) = {mss}
+0 > P. 1:{end}({mss}) ack 1
+.01 < icmp {report} [1:{end}({mss})]
{then}",
        end = mss + 1
    )
}

/// One segment of `mss` bytes is sent again in segments of `least` bytes, and later data has that size.
fn cut_to(mss: u32, least: u32) -> String {
    let mut script = String::new();
    for (begin, end) in [(1, mss + 1), (mss + 1, 2 * mss + 1)] {
        if begin > 1 {
            script += &format!("+0 write(4, ..., {mss}) = {mss}\n");
        }
        let mut at = begin;
        while at < end {
            let next = end.min(at + least);
            let flags = if next == end { "P." } else { "." };
            script += &format!("+0 > {flags} {at}:{next}({}) ack 1\n", next - at);
            at = next;
        }
        script += &format!("+.01 < . 1:1(0) ack {end} win 65535\n");
    }
    script
}

/// The report changes neither the flight nor later segments.
fn ignored(mss: u32) -> String {
    let (end, next) = (mss + 1, 2 * mss + 1);
    format!(
        "+.01 < . 1:1(0) ack {end} win 65535
+0 write(4, ..., {mss}) = {mss}
+0 > P. {end}:{next}({mss}) ack 1
+.01 < . 1:1(0) ack {next} win 65535
"
    )
}

/// RFC 1191 section 3: the host reduces its estimate; no report takes it below the floor of 552.
#[test]
fn no_report_takes_a_connection_below_the_floor() {
    for version in ["ipv4", "ipv4-mapped-ipv6"] {
        for (reported_mtu, path) in
            [(1, 552), (67, 552), (68, 552), (300, 552), (551, 552), (552, 552), (576, 576), (1006, 1006)]
        {
            let report = format!("unreachable frag_needed mtu {reported_mtu}");
            let script = reported(version, (1500, V4), 1460, &report, &cut_to(1460, path - V4));
            goes_through(&format!("MTU {reported_mtu} over {version}"), &script);
        }
    }
}

/// RFC 1191 section 5: an old router reports 0. The next estimate is the greatest plateau of section 7.1 below the
/// Total Length of the quoted packet; if that length is not below the present estimate, the router may have added the
/// length of the header, and 20 bytes are subtracted first.
#[test]
fn a_report_of_0_goes_one_plateau_down() {
    for version in ["ipv4", "ipv4-mapped-ipv6"] {
        for (link, mss, path) in [
            // The packet is as large as the estimate: 1500 - 20 = 1480, below which the table has 1006.
            (1500, 1460, 1006),
            (4352, 4312, 2002),
            (9000, 8960, 8166),
            // The packet is smaller than the estimate, so its length is correct.
            (9000, 4460, 4352),
            (9000, 1460, 1492),
            (1500, 1000, 1006),
            // 508 and all later plateaus are below the floor.
            (1500, 960, 552),
            (1006, 966, 552),
            (576, 536, 552),
        ] {
            let script = reported(version, (link, V4), mss, "unreachable frag_needed mtu 0", &cut_to(mss, path - V4));
            goes_through(&format!("{mss} bytes on a link of {link} over {version}"), &script);
        }
    }
}

/// Successive reports of 0 end at the floor, and the last of them changes nothing.
#[test]
fn reports_of_0_end_at_the_floor() {
    let again = "+0 > . 1:967(966) ack 1
+0 > P. 967:1461(494) ack 1
+.01 < icmp unreachable frag_needed mtu 0 [1:967(966)]
+0 > . 1:513(512) ack 1
+0 > . 513:967(454) ack 1
+.01 < icmp unreachable frag_needed mtu 0 [1:513(512)]
+.01 < . 1:1(0) ack 1461 win 65535
+0 write(4, ..., 600) = 600
+0 > . 1461:1973(512) ack 1
+0 > P. 1973:2061(88) ack 1
";
    goes_through("again", &reported("ipv4", (1500, V4), 1460, "unreachable frag_needed mtu 0", again));
}

/// RFC 1191 section 3: no estimate grows because of a report.
#[test]
fn a_report_of_more_than_the_estimate_changes_nothing() {
    for mtu in [1500, 9000, 65535] {
        let report = format!("unreachable frag_needed mtu {mtu}");
        goes_through(&report, &reported("ipv4", (1500, V4), 1460, &report, &ignored(1460)));
    }
}

/// RFC 8201 section 4: a report of less than 1280 is discarded, and none takes the estimate below 1280.
#[test]
fn over_ipv6_a_report_below_1280_is_discarded() {
    for mtu in [0, 1, 67, 68, 300, 551, 552, 576, 1279] {
        let report = format!("packet_too_big mtu {mtu}");
        goes_through(&report, &reported("ipv6", (1500, V6), 1440, &report, &ignored(1440)));
    }
    for mtu in [1280, 1281, 1400] {
        let report = format!("packet_too_big mtu {mtu}");
        goes_through(&report, &reported("ipv6", (1500, V6), 1440, &report, &cut_to(1440, mtu - V6)));
    }
}

/// A connection begins with the path MTU that an earlier one to the same host has learned.
#[test]
fn the_cache_learns_what_the_connection_did() {
    for (mtu, mss) in [(0, 966), (1, 512), (67, 512), (68, 512), (300, 512), (551, 512), (552, 512), (576, 536)] {
        let report = format!("unreachable frag_needed mtu {mtu}");
        let next = format!(
            "{}+.1 < 9000 > 8080 S 0:0(0) win 65535 <mss 1460>
+0 > 8080 > 9000 S. 0:0(0) ack 1 <mss {mss}>
+.01 < 9000 > 8080 . 1:1(0) ack 1 win 65535
+0 accept(3, ..., ...) = 5
+0 write(5, ..., {two}) = {two}
+0 > 8080 > 9000 . 1:{middle}({mss}) ack 1
+0 > 8080 > 9000 P. {middle}:{end}({mss}) ack 1
",
            cut_to(1460, mss),
            two = 2 * mss,
            middle = mss + 1,
            end = 2 * mss + 1
        );
        let script = reported("ipv4", (1500, V4), 1460, &report, &next);
        goes_through(&report, &script);
    }
}

/// A UDP socket is notified of a message that does not fit, not of the MTU.
#[test]
fn a_connected_udp_socket_hears_of_every_report_that_is_believed() {
    let script = |version: &str, report: &str, then: &str| {
        format!(
            "--ip_version={version}
0 socket(..., SOCK_DGRAM, IPPROTO_UDP) = 3
+0 bind(3, ..., ...) = 0
+0 connect(3, ..., ...) = 0
+0 send(3, ..., 1400, 0) = 1400
+0 > udp (1400)
+.01 < icmp {report} [udp (1400)]
{then}"
        )
    };
    let told =
        "+0 send(3, ..., 500, 0) = -1 EMSGSIZE (Message too long)\n+0 send(3, ..., 500, 0) = 500\n+0 > udp (500)\n";
    let nothing = "+0 send(3, ..., 500, 0) = 500\n+0 > udp (500)\n";
    for mtu in [0, 1, 67, 68, 300, 551, 552, 576] {
        let report = format!("unreachable frag_needed mtu {mtu}");
        goes_through(&report, &script("ipv4", &report, told));
        let report = format!("packet_too_big mtu {mtu}");
        goes_through(&report, &script("ipv6", &report, nothing));
    }
    goes_through("1280", &script("ipv6", "packet_too_big mtu 1280", told));
}
