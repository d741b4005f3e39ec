//! A wrong script, or a wrong stack, must be reported in one line: each script here has one error.

use heddle_drill::check::check;
use heddle_drill::run::Options;
use stack::Architecture;

const OPEN: &str = "\
`./defaults.sh`
0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 bind(3, ..., ...) = 0
+0 listen(3, 1) = 0
+0 < S 0:0(0) win 32792 <mss 1000,sackOK,TS val 100 ecr 0>
+0 > S. 0:0(0) ack 1 <mss 1460,sackOK,TS val 10 ecr 100>
+.01 < . 1:1(0) ack 1 win 32792 <nop,nop,TS val 100 ecr 10>
+0 accept(3, ..., ...) = 4
";

/// The line and the sentence of the error in `script`.
fn fault(script: &str) -> (u32, String) {
    let fault = check(script, &[Architecture::named("up")], &Options::new(Architecture::named("up")), &[]).fault;
    let fault = fault.unwrap_or_else(|| panic!("nothing is wrong with\n{script}"));
    (fault.error.line, fault.error.message)
}

/// `more` is on line 9.
fn after_open(more: &str) -> String {
    let (line, message) = fault(&format!("{OPEN}{more}"));
    assert_eq!(line, 9 + more.lines().count() as u32 - 1, "{message}");
    message
}

#[test]
fn every_field_of_a_segment_is_compared() {
    let write = "+0 write(4, ..., 100) = 100\n+0 ";
    for (expected, what) in [
        ("> . 1:101(100) ack 1 <nop,nop,TS val 20 ecr 100>", "flags"),
        ("> P. 2:102(100) ack 1 <nop,nop,TS val 20 ecr 100>", "sequence number"),
        ("> P. 1:91(90) ack 1 <nop,nop,TS val 20 ecr 100>", "length"),
        ("> P. 1:101(100) ack 2 <nop,nop,TS val 20 ecr 100>", "acknowledgement number"),
        ("> P. 1:101(100) ack 1 win 1 <nop,nop,TS val 20 ecr 100>", "window"),
        ("> P. 1:101(100) ack 1 <nop,nop,TS val 20 ecr 101>", "options"),
        ("> P. 1:101(100) ack 1 <TS val 20 ecr 100,nop,nop>", "options"),
        ("> P. 1:101(100) ack 1", "options"),
        ("> [ce] P. 1:101(100) ack 1 <...>", "ECN"),
        ("> [ttl 3] P. 1:101(100) ack 1 <...>", "ttl"),
    ] {
        let message = after_open(&format!("{write}{expected}"));
        assert!(message.starts_with(&format!("expected {}", expected.replace(" <...>", ""))), "{message}");
        assert!(message.ends_with(&format!(": {what}")), "{message}");
    }
}

#[test]
fn a_packet_too_early_too_late_or_never_is_noticed() {
    let early = after_open("+0 write(4, ..., 100) = 100\n+.5 > P. 1:101(100) ack 1 <...>");
    assert!(early.contains("time 0.010000 s instead of 0.510000 s"), "{early}");
    let late =
        after_open("+0 write(4, ..., 100) = 100\n+0 > P. 1:101(100) ack 1 <...>\n+.05 > P. 1:101(100) ack 1 <...>");
    assert!(late.contains("instead of 0.060000 s"), "{late}");
    let never = after_open("+0 > . 1:1(0) ack 1 <...>");
    assert!(never.contains("got nothing until 2.01"), "{never}");
}

#[test]
fn an_unscripted_packet_in_the_way_is_noticed() {
    let more = "+0 < . 1:1001(1000) ack 1 win 32792 <nop,nop,TS val 100 ecr 10>\n+0 write(4, ..., 100) = 100\n+0 > ";
    let message = after_open(&format!("{more}P. 1:51(50) ack 1001 <...>"));
    assert!(message.contains("got > P. 1:101(100) ack 1001"), "{message}");
    let message = after_open(&format!("{more}F. 1:1(0) ack 1001 <...>"));
    assert!(message.contains("got > . 1:1(0) ack 1001"), "{message}");
}

/// As in packetdrill, an acknowledgement may be sent right before the data in the script, if it has the same numbers.
#[test]
fn an_acknowledgement_in_front_of_data_is_part_of_it() {
    let script = |settings: &str, between: &str, ack: u32| {
        let opening = OPEN.replace("+.01 <", "+0 <");
        let peer = "<nop,nop,TS val 100 ecr 10>";
        format!(
            "{settings}{opening}+0 < . 1:1001(1000) ack 1 win 32792 {peer}\n{between}+0 write(4, ..., 100) = 100\n\
             +0 > P. 1:101(100) ack {ack} <...>"
        )
    };
    let goes_through = |data: &str| {
        check(data, &[Architecture::named("up")], &Options::new(Architecture::named("up")), &[]).fault.is_none()
    };
    assert!(goes_through(&script("", "", 1001)));
    assert!(!goes_through(&script("--strict_segments\n", "", 1001)));
    // More data changes the acknowledgement number.
    let (_, message) = fault(&script("", "+0 < . 1001:2001(1000) ack 1 win 32792 <nop,nop,TS val 100 ecr 10>\n", 2001));
    assert!(message.contains("got > . 1:1(0) ack 1001"), "{message}");
}

#[test]
fn what_is_left_over_is_an_error_if_the_script_asks() {
    let more = "+0 write(4, ..., 100) = 100\n+.1 %{ }%";
    let checked =
        check(&format!("{OPEN}{more}"), &[Architecture::named("up")], &Options::new(Architecture::named("up")), &[]);
    assert!(checked.fault.is_none());
    let (_, message) = fault(&format!("--no_leftovers\n{OPEN}{more}"));
    assert!(message.contains("> P. 1:101(100) ack 1") && message.contains("at 0.010000 s"), "{message}");
}

#[test]
fn timestamps_are_compared_when_the_tick_is_known() {
    let script = |val: u32| {
        format!(
            "--tcp_ts_tick_usecs=1000\n{OPEN}+.2 write(4, ..., 10) = 10\n+0 > P. 1:11(10) ack 1 <nop,nop,TS val {val} ecr 100>"
        )
    };
    assert!(
        check(&script(220), &[Architecture::named("up")], &Options::new(Architecture::named("up")), &[])
            .fault
            .is_none()
    );
    let (line, message) = fault(&script(420));
    assert_eq!((line, message.ends_with(": options")), (11, true), "{message}");
    assert!(message.contains("TS val 220 ecr 100"), "{message}");
}

#[test]
fn results_of_calls_are_compared() {
    for (call, message) in [
        ("write(4, ..., 100) = 99", "write() = 100, expected 99"),
        ("write(9, ..., 100) = 100", "write() = -1 EBADF, expected 100"),
        ("read(4, ..., 100) = -1 EAGAIN (x)", "read() still blocks at 0.010000 s"),
        ("accept(4, ..., ...) = -1 EBADF (x)", "accept() = -1 EINVAL, expected -1 EBADF"),
        ("getsockopt(4, SOL_SOCKET, SO_TYPE, [2], [4]) = 0", "getsockopt() stored 1 as the option, expected 2"),
        ("poll([{fd=4, events=POLLOUT, revents=POLLIN}], 1, 0) = 1", "poll() stored 4 as revents, expected 1"),
    ] {
        assert_eq!(after_open(&format!("+0 {call}")), message);
    }
}

#[test]
fn a_call_that_blocks_must_end_when_the_script_says() {
    let message = fault(&format!(
        "{OPEN}+0...0.5 read(4, ..., 10) = 10\n+.1 < . 1:11(10) ack 1 win 9 <nop,nop,TS val 120 ecr 10>\n+.1 close(4) = 0"
    ));
    assert_eq!(message, (9, "read() returned at 0.110000 s instead of 0.510000 s".to_owned()));
    let message = fault(&format!("{OPEN}+0...0.1 read(4, ..., 10) = 10"));
    assert!(message.1.starts_with("read() still blocks at"), "{}", message.1);
}

#[test]
fn assertions_say_what_the_value_is() {
    let message = after_open("+0 %{ assert tcpi_snd_cwnd == 7, 'cwnd %d' % tcpi_snd_cwnd }%");
    assert_eq!(message, "assertion failed: tcpi_snd_cwnd == 7: cwnd 10 (tcpi_snd_cwnd is 10)");
}

#[test]
fn what_is_not_there_is_said_to_be_not_supported() {
    for (line, data) in [
        ("+0 epoll_pwait2(3) = 0", "the system call epoll_pwait2()"),
        ("+0 setsockopt(4, SOL_TCP, TCP_MD5SIG, [1], 4) = 0", "the socket option TCP_MD5SIG"),
        ("+0 `iptables -F`", "the shell command `iptables -F`"),
        ("+0 `sysctl -q net.ipv4.tcp_nonsense=1`", "tcp_nonsense"),
        ("+0 %{ assert tcpi_nonsense == 1 }%", "the name tcpi_nonsense"),
        ("+0 < . 1:1(0) ack 1 win 9 <md5 0011>", "TCP option md5"),
        ("+0 < gre : . 1:1(0) ack 1 win 9", "encapsulation in gre"),
    ] {
        let message = after_open(line);
        assert!(message.starts_with("not supported: ") && message.contains(data), "{message}");
    }
}

/// A text that is not a script, or would check something else than it seems, is refused with its line.
#[test]
fn what_the_language_does_not_allow_is_refused() {
    for (line, data) in [
        ("+0 < . 1:1(0) ack 1 win 9 <sackOK>", "the options take 2 bytes: pad them"),
        ("+0 > . 1:1(0) ack 1 <nop,nop,nop>", "the options take 3 bytes: pad them"),
        ("+0 < . 1:1(0) ack 1", "a segment that comes needs a window"),
        ("+0 < . 1:65501(65500) ack 1 win 9 <...>", "<...> leaves a choice"),
        ("+0 < . 1:65521(65520) ack 1 win 9", "the packet is too large"),
        ("+0 < icmp unreachable frag_needed mtu 99999999 [1:11(10)]", "an MTU of ICMP is 0 to 65535, not 99999999"),
        ("+0 < icmp unreachable frag_needed mtu 65536 [1:11(10)]", "an MTU of ICMP is 0 to 65535, not 65536"),
        ("+0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 4", "descriptor 4 is open already"),
        ("+0 pipe([5, 5]) = 0", "descriptor 5 is open already"),
        ("+0 epoll_create(1) = 3", "descriptor 3 is open already"),
        ("+0 < P5E. 1:1(0) ack 1 win 9", "the ACE field and E, W or A"),
        ("+0 < P55. 1:1(0) ack 1 win 9", "the ACE field twice"),
        ("+0 < P8. 1:1(0) ack 1 win 9", "the flags of a segment"),
    ] {
        let message = after_open(line);
        assert!(message.contains(data), "{line}: {message}");
    }
}

#[test]
fn a_script_without_an_event_and_settings_out_of_range_are_refused() {
    for script in ["", "// nothing\n", "--mtu=1500\n", "`./defaults.sh`\n"] {
        assert!(fault(script).1.contains("the script has no event"), "{script:?}");
    }
    for setting in ["mss=0", "mss=65536", "mss=x", "mtu=67", "tolerance_usecs=0", "tcp_ts_tick_usecs=1000001"] {
        assert_eq!(fault(&format!("--{setting}\n{OPEN}")), (1, format!("--{setting} cannot be read")));
    }
    // A number is free again when its descriptor is closed.
    let again = format!("{OPEN}+0 close(3) = 0\n+0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3");
    assert!(check(&again, &[Architecture::named("up")], &Options::new(Architecture::named("up")), &[]).fault.is_none());
}

/// Traces of different scripts differ.
#[test]
fn a_run_is_a_function_of_the_script() {
    let architectures = [Architecture::named("up"), Architecture::named("giant")];
    let checked = check(OPEN, &architectures, &Options::new(Architecture::named("up")), &[]);
    assert!(checked.fault.is_none());
    let [(_, first), (_, second)] = &checked.traces[..] else { panic!("two traces") };
    assert_eq!(first, second);
    assert!(first.len() >= 3, "a SYN, a SYN-ACK, an ACK at least");
    let other =
        check(&OPEN.replace("mss 1000", "mss 999"), &architectures, &Options::new(Architecture::named("up")), &[]);
    assert_ne!(&other.traces[0].1, first);
}
