//! User time-outs that the two ends advertise to each other (RFC 5482).

mod support;

use std::time::Duration;

use observe::Counter;
use support::endpoint::Setup;
use support::script::{Peer, Script, peer};
use tcp::config::KeepAlive;
use tcp::{Error, SetOption, SocketOption, State};
use wire::tcp::{ExtraOptions, UserTimeout};

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn telling(seconds: u64, peer: Peer) -> Peer {
    let user_timeout = UserTimeout::new(s(seconds));
    Peer { rare: ExtraOptions { user_timeout, ..ExtraOptions::NONE }, ..peer }
}

fn setup(announced: Option<u64>) -> Setup {
    let mut setup = Setup::default();
    setup.options.announced_user_timeout = announced.map(s);
    setup
}

/// The user time-out advertised by each segment since the last call, in seconds.
fn told(t: &mut Script) -> Vec<Option<u64>> {
    let read = |buf: &pktbuf::PktBuf| {
        let header = wire::tcp::parse(buf).expect("a good segment");
        let rare = ExtraOptions::parse(&buf[20..usize::from(header.header_len)]);
        rare.user_timeout.map(|time| time.duration().as_secs())
    };
    std::mem::take(&mut t.us.sent).iter().map(read).collect()
}

/// Connected actively to a peer whose SYN-ACK advertises `theirs`.
fn connected(setup: Setup, theirs: Option<u64>) -> Script {
    Script::connected(setup, |syn| theirs.map_or(syn.clone(), |seconds| telling(seconds, syn)))
}

fn user_timeout(t: &mut Script) -> Duration {
    t.us.status().options.user_timeout
}

//= https://www.rfc-editor.org/rfc/rfc5482#section-3
//= type=test
//# In addition to exchanging UTO options in the SYN segments, a connection that has enabled UTO options SHOULD include
//# a UTO option in the first packet that does not have the SYN flag set.
#[test]
fn it_rides_on_the_syn_and_on_the_first_segment_behind_it() {
    let mut t = Script::new(setup(Some(300)));
    t.us.open(t.now);
    assert_eq!(told(&mut t), [Some(300)]);
    t.pass(s(1));
    assert_eq!(told(&mut t), [Some(300)], "and on a SYN that is sent again");
    t.inject(peer("S.").seq(0).ack(1).mss(1000));
    assert_eq!(told(&mut t), [Some(300)], "one acknowledgement, no second without it");
    t.send(100);
    assert_eq!(told(&mut t), [None]);

    let mut t = Script::new(setup(None));
    t.us.open(t.now);
    t.inject(telling(300, peer("S.").seq(0).ack(1).mss(1000)));
    assert_eq!(told(&mut t), [None, None], "it is off unless asked for");
    assert_eq!(user_timeout(&mut t), s(0));
}

#[test]
fn a_listener_tells_it_in_the_syn_ack_and_heeds_the_first_segment() {
    let mut t = Script::new(setup(Some(200)));
    t.us.listening = true;
    t.inject(telling(400, peer("S").seq(0).mss(1000)));
    assert_eq!(told(&mut t), [Some(200)]);
    t.inject(telling(400, peer(".")));
    assert_eq!((t.state(), user_timeout(&mut t)), (State::Established, s(400)));
}

//= https://www.rfc-editor.org/rfc/rfc5482#section-3.1
//= type=test
//# Under the RECOMMENDED scheme, and when CHANGEABLE is true, each end SHOULD compute the local USER TIMEOUT for a
//# connection according to this formula:
//= https://www.rfc-editor.org/rfc/rfc5482#section-3
//= type=test
//# Hosts MUST impose upper and lower limits on the user timeouts they use for a connection.
//= https://www.rfc-editor.org/rfc/rfc5482#section-3.1
//= type=test
//# To protect against these effects, implementations MUST impose limits on the user timeout values they accept and use.
//= https://www.rfc-editor.org/rfc/rfc5482#section-3.1
//= type=test
//# Consequently, the lower limit (L_LIMIT) SHOULD be set to at least 100 seconds when following the RECOMMENDED scheme
//# described in this section.
#[test]
fn the_longer_of_the_two_counts_within_the_limits() {
    for (ours, theirs, expected) in [(200, 400, 400), (400, 200, 400), (5, 10, 100), (5, 1_000_000, 3600)] {
        let mut t = connected(setup(Some(ours)), Some(theirs));
        assert_eq!(user_timeout(&mut t), s(expected), "{ours} {theirs}");
    }
    let mut t = connected(setup(Some(200)), None);
    assert_eq!(user_timeout(&mut t), s(0), "nothing was told");
    t.inject(telling(1000, peer(".")));
    assert_eq!(user_timeout(&mut t), s(1000), "it may come at any time");
    t.inject(telling(120, peer(".").len(10)));
    assert_eq!(user_timeout(&mut t), s(200), "with text, and be taken back");
    assert_eq!(t.us.status().options.peer_user_timeout, Some(s(120)));
}

#[test]
fn the_connection_lives_as_long_as_was_agreed() {
    for (theirs, lives) in [(1500, s(1499)), (100, s(299))] {
        let mut t = connected(setup(Some(300)), Some(theirs));
        t.send(100);
        t.pass(lives);
        assert_eq!(t.state(), State::Established, "{theirs}");
        t.pass(s(2));
        assert_eq!(t.us.status().error, Some(Error::TimedOut), "{theirs}");
    }
}

//= https://www.rfc-editor.org/rfc/rfc5482#section-3.1
//= type=test
//# Therefore, the lower limit (L_LIMIT) MUST be larger than the current retransmission timeout (RTO) for the connection.
#[test]
fn no_wish_is_shorter_than_the_retransmission_time_out() {
    let mut wanted = setup(Some(1));
    wanted.config.user_timeout_limits.0 = s(1);
    let mut t = connected(wanted, None);
    t.send(100);
    t.pass(s(20));
    let rto = t.us.status().rto;
    assert!(rto > s(5));
    t.inject(telling(1, peer(".")));
    assert!(user_timeout(&mut t) > rto);
}

//= https://www.rfc-editor.org/rfc/rfc5482#section-3.1
//= type=test
//# If the CHANGEABLE flag is false, USER_TIMEOUT MUST NOT be changed, regardless of the received UTO option.
//= https://www.rfc-editor.org/rfc/rfc5482#section-3
//= type=test
//# If an application explicitly sets the USER_TIMEOUT, CHANGEABLE MUST become false in order to prevent UTO options
//# (from the other end) from overriding local application requests.
#[test]
fn what_the_user_has_set_stays() {
    let mut wanted = setup(Some(500));
    wanted.options.user_timeout = Some(s(120));
    let mut t = connected(wanted, Some(1000));
    assert_eq!(user_timeout(&mut t), s(120));
    assert_eq!(t.us.status().options.peer_user_timeout, Some(s(1000)), "but it can be asked for");
    t.run(SetOption(SocketOption::UserTimeout(None))).expect("set");
    t.inject(telling(1000, peer(".")));
    assert_eq!(user_timeout(&mut t), s(1000), "until it is taken back");
}

//= https://www.rfc-editor.org/rfc/rfc5482#section-3
//= type=test
//# A host that supports the UTO option SHOULD include one in the next possible outgoing segment whenever it starts using a
//# new user timeout for the connection.
#[test]
fn a_change_is_told_at_once() {
    let mut t = connected(setup(None), None);
    t.inject(telling(1000, peer(".")));
    assert_eq!(user_timeout(&mut t), s(0));
    t.run(SetOption(SocketOption::AnnouncedUserTimeout(Some(s(40_000))))).expect("set");
    assert_eq!(told(&mut t), [Some(40_020)], "in whole minutes, none too few");
    t.inject(telling(1000, peer(".")));
    assert_eq!(user_timeout(&mut t), s(3600));
    t.run(SetOption(SocketOption::AnnouncedUserTimeout(None))).expect("set");
    assert_eq!(told(&mut t), []);
    t.inject(telling(10, peer(".")));
    assert_eq!(user_timeout(&mut t), s(3600), "no longer heeded");
    for wrong in [Duration::ZERO, s(60 * 32_768)] {
        let refused = t.run(SetOption(SocketOption::AnnouncedUserTimeout(Some(wrong))));
        assert_eq!(refused, Err(Error::InvalidOption));
    }
}

//= https://www.rfc-editor.org/rfc/rfc5482#section-4.2
//= type=test
//# Therefore, if a connection that enables keep-alives is also using the TCP User Timeout Option, then the
//# keep-alive timer MUST be set to a value larger than that of the adopted USER TIMEOUT.
#[test]
fn keep_alive_waits_longer_than_the_time_that_was_adopted() {
    let mut wanted = setup(Some(200));
    wanted.options.keep_alive = Some(KeepAlive { idle: s(10), interval: s(1), probes: 3 });
    let mut t = connected(wanted, Some(300));
    t.pass(s(300));
    assert_eq!((t.state(), t.us.count(Counter::KeepAlivesOut)), (State::Established, 0));
    t.pass(s(3));
    assert_eq!(t.us.count(Counter::KeepAlivesOut), 1);
}

//= https://www.rfc-editor.org/rfc/rfc5482#section-3.4
//= type=test
//# Current TCP implementations MUST NOT send it and MUST ignore it upon reception.
//= https://www.rfc-editor.org/rfc/rfc5482#section-3.3
//= type=test
//# This MUST be 28, i.e., the TCP option number [RFC0793] that has been assigned by IANA (see Section 7).
//= https://www.rfc-editor.org/rfc/rfc5482#section-3.3
//= type=test
//# Length of the TCP option in octets [RFC0793]; its value MUST be 4.
//= https://www.rfc-editor.org/rfc/rfc5482#section-3.3
//= type=test
//# When set (G = 1), the time interval in the "User Timeout" field MUST be interpreted as minutes.
#[test]
fn the_reserved_values_mean_nothing() {
    for field in [[0, 0], [0x80, 0]] {
        let read = ExtraOptions::parse(&[28, 4, field[0], field[1]]);
        assert_eq!(read, ExtraOptions::NONE);
    }
    assert_eq!(ExtraOptions::parse(&[28, 4, 0x80, 2]).user_timeout.map(UserTimeout::duration), Some(s(120)));
    assert_eq!(ExtraOptions::parse(&[28, 3, 1, 28, 5, 1, 1, 1]), ExtraOptions::NONE, "lengths that it cannot have");
}

//= https://www.rfc-editor.org/rfc/rfc5482#section-3.2
//= type=test
//# Consequently, implementations MUST NOT assume that UTO options are transmitted reliably.
#[test]
fn what_is_lost_changes_nothing_and_may_come_later() {
    let mut t = connected(setup(Some(300)), Some(200));
    assert_eq!(user_timeout(&mut t), s(300));
    t.run(SetOption(SocketOption::AnnouncedUserTimeout(Some(s(600))))).expect("set");
    assert_eq!(told(&mut t), [Some(600)], "which the network loses");
    t.pass(s(1000));
    assert_eq!((told(&mut t), t.state()), (vec![], State::Established), "nobody waits for an answer");
    t.inject(telling(200, peer(".")));
    assert_eq!(user_timeout(&mut t), s(600));
}

#[test]
fn before_the_handshake_the_usual_times_count() {
    let mut wanted = setup(Some(100));
    wanted.config.syn_retries = 6;
    let mut t = Script::new(wanted);
    t.us.open(t.now);
    t.inject(telling(100, peer("S").seq(0).mss(1000)));
    assert_eq!((t.state(), user_timeout(&mut t)), (State::SynReceived, s(0)), "both ends opened at once");
    t.inject(telling(100, peer(".")));
    assert_eq!((t.state(), user_timeout(&mut t)), (State::Established, s(100)));
}

//= https://www.rfc-editor.org/rfc/rfc5482#section-3
//= type=test
//# A TCP implementation that does not support the UTO option MUST silently ignore it [RFC1122], thus ensuring
//# interoperability.
#[test]
fn where_it_is_off_a_segment_with_it_is_like_any_other() {
    let mut t = connected(setup(None), Some(300));
    t.take();
    t.inject(telling(300, peer(".").len(2000)));
    t.expect(&[". 1:1(0) ack 2001 win 63535"]);
    assert_eq!(t.us.status().options.peer_user_timeout, None);
}

/// Byte by byte, both ways: kind, length, the granularity in the highest bit, fifteen bits without a sign.
//= https://www.rfc-editor.org/rfc/rfc5482#section-3.3
//= type=test
//# This MUST be 28, i.e., the TCP option number [RFC0793] that has been assigned by IANA (see Section 7).
//= https://www.rfc-editor.org/rfc/rfc5482#section-3.3
//= type=test
//# Length of the TCP option in octets [RFC0793]; its value MUST be 4.
//= https://www.rfc-editor.org/rfc/rfc5482#section-3.3
//= type=test
//# When set (G = 1), the time interval in the "User Timeout" field MUST be interpreted as minutes.
//= https://www.rfc-editor.org/rfc/rfc5482#section-3.3
//= type=test
//# Otherwise (G = 0), the time interval in the "User Timeout" field MUST be interpreted as seconds.
//= https://www.rfc-editor.org/rfc/rfc5482#section-3.3
//= type=test
//# It MUST be interpreted as a 15-bit unsigned integer.
#[test]
fn the_field_byte_by_byte() {
    let read = |high, low| ExtraOptions::parse(&[28, 4, high, low]).user_timeout.map(UserTimeout::duration);
    assert_eq!(read(0x00, 0x01), Some(s(1)));
    assert_eq!(read(0x01, 0x2c), Some(s(300)));
    assert_eq!(read(0x7f, 0xff), Some(s(32_767)));
    assert_eq!(read(0x80, 0x01), Some(s(60)));
    assert_eq!(read(0xc0, 0x00), Some(s(16_384 * 60)));
    assert_eq!(read(0xff, 0xff), Some(s(32_767 * 60)));

    for (seconds, field) in [(300, [0x01, 0x2c]), (32_767, [0x7f, 0xff]), (32_768, [0x82, 0x23]), (1, [0, 1])] {
        let mut t = Script::new(setup(Some(seconds)));
        t.us.open(t.now);
        let header = wire::tcp::parse(&t.us.sent[0]).expect("a good segment");
        let options = &t.us.sent[0][20..usize::from(header.header_len)];
        let option = [28, 4, field[0], field[1]];
        assert!(options.windows(4).any(|four| four == option), "{seconds} s: {options:?} without {option:?}");
    }
}

/// A field of zero is never sent: it cannot be set, and less than a second is not rounded to it.
//= https://www.rfc-editor.org/rfc/rfc5482#section-3.4
//= type=test
//# Current TCP implementations MUST NOT send it and MUST ignore it upon reception.
#[test]
fn the_reserved_values_are_neither_sent_nor_heeded() {
    let mut t = connected(setup(Some(200)), None);
    t.take();
    let asked = t.run(SetOption(SocketOption::AnnouncedUserTimeout(Some(Duration::ZERO))));
    assert_eq!((asked, told(&mut t)), (Err(Error::InvalidOption), vec![]));
    for milliseconds in [1, 499, 500, 999] {
        let wish = Duration::from_millis(milliseconds);
        if t.run(SetOption(SocketOption::AnnouncedUserTimeout(Some(wish)))).is_ok() {
            assert!(told(&mut t).iter().flatten().all(|seconds| *seconds > 0), "{milliseconds} ms");
        }
    }
    for field in [[0, 0], [0x80, 0]] {
        assert_eq!(ExtraOptions::parse(&[28, 4, field[0], field[1]]), ExtraOptions::NONE);
    }
}

/// Both ends advertise twenty seconds; an unanswered handshake lasts as long as one without the option.
//= https://www.rfc-editor.org/rfc/rfc5482#section-3.3
//= type=test
//# Connections in other states MUST use the default timeout values defined in [RFC0793] and [RFC1122].
#[test]
fn a_handshake_lasts_as_long_with_the_option_as_without() {
    let patience = |announced: Option<u64>, both_at_once: bool| {
        let mut wanted = setup(announced);
        wanted.config.user_timeout_limits.0 = s(20);
        let mut t = Script::new(wanted);
        t.us.open(t.now);
        if both_at_once {
            t.inject(announced.map_or(peer("S"), |seconds| telling(seconds, peer("S"))).seq(0).mss(1000));
            assert_eq!(t.state(), State::SynReceived);
        }
        let start = t.now;
        while t.us.status().error.is_none() {
            assert!(t.now - start < s(3600), "it never gives up");
            t.pass(s(1));
        }
        t.now - start
    };
    for both_at_once in [false, true] {
        let usual = patience(None, both_at_once);
        assert!(usual > s(60), "{usual:?}");
        assert_eq!(patience(Some(20), both_at_once), usual);
    }
}
