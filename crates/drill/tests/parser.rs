//! The parser never panics: scripts are untrusted input.

use heddle_drill::parse::parse;
use proptest::prelude::*;

/// Pieces of scripts, to be combined in any order.
const PIECES: [&str; 48] = [
    "+0 ",
    "0 ",
    "+.1~+.2 ",
    "* ",
    "0...0.3 ",
    "< ",
    "> ",
    "S. ",
    ". ",
    "- ",
    ".5 ",
    "SEWA ",
    "0:0(0) ",
    "1:1001(1000) ",
    "ack 1 ",
    "win 5 ",
    "urg 3 ",
    "<mss 1460,nop,wscale 8>",
    "<sack 1:2 3:4>",
    "<TS val 1 ecr 2>",
    "<...>",
    "<FO 12ab,ECN e0b 1>",
    "[ect0] ",
    "(tos 0x10) ",
    "icmp unreachable ",
    "frag_needed mtu 1200 ",
    "[1:2(1)] ",
    "udp (10) ",
    "socket(",
    "..., ",
    ") = 3\n",
    ") = -1 EAGAIN (x)\n",
    "{fd=4, events=POLLIN}",
    "[1, 2]",
    "|",
    "inet_addr(\"1.2.3.4\")",
    "`sysctl -q a=1`",
    "%{ assert tcpi_x == 1, 'a%d' % x }%",
    "--mtu=1500\n",
    "// c\n",
    "/* c */",
    "\"a\\x41\"",
    "((((",
    "}",
    "%{",
    "`",
    "\n",
    "99999999999999999999",
];

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC*") {
        let _ = parse(&text);
    }

    #[test]
    fn any_pieces_are_read_or_refused(pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..40)) {
        let text: String = pieces.concat();
        if let Err(error) = parse(&text) {
            let lines = text.lines().count().max(1) as u32;
            prop_assert!((1..=lines + 1).contains(&error.line), "line {} of {lines}: {}", error.line, error.message);
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&String::from_utf8_lossy(&bytes));
    }

    /// One character of a good script changed.
    #[test]
    fn a_damaged_script_is_read_or_refused(place in 0..GOOD.len(), with in "[ -~\\n]") {
        let mut text = GOOD.to_owned();
        if text.is_char_boundary(place) && text.is_char_boundary(place + 1) {
            text.replace_range(place..=place, &with);
        }
        let _ = parse(&text);
    }
}

const GOOD: &str = "--tolerance_usecs=5000\n`./defaults.sh`\n0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n\
+0...0.2 connect(3, {sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr(\"10.0.0.1\")}, 16) = 0\n\
+0 > S 0:0(0) <mss 1460,sackOK,TS val 100 ecr 0,nop,wscale 8>\n\
+.1 < [ect0] S. 0:0(0) ack 1 win 5792 <mss 1460,nop,nop,sack 1:2>\n\
* > . 1:1(0) ack 1\n+0 %{ assert tcpi_snd_cwnd in (10, 11), 'x%d' % tcpi_snd_cwnd }%\n";

#[test]
fn the_good_script_is_good() {
    assert_eq!(parse(GOOD).map(|script| script.events.len()).map_err(|error| error.to_string()), Ok(7));
}

#[test]
fn brackets_without_end_do_not_exhaust_the_stack() {
    for open in ["(", "{", "[", "~", "f(", "{a="] {
        assert!(parse(&format!("0 f({}", open.repeat(100_000))).is_err());
    }
    for open in ["(", "-", "not ", "~", "f(", "[", "1 if "] {
        assert!(parse(&format!("0 %{{ assert {} }}%", open.repeat(100_000))).is_err());
    }
}
