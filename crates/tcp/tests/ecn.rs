//! Classic explicit congestion notification (RFC 3168).

mod support;

use observe::Counter;
use support::endpoint::Setup;
use support::ms;
use support::script::{Peer, Script, peer};
use tcp::config::Ecn;
use tcp::ecn::EcnMode;
use wire::tcp::TcpFlags;

const ECT_0: u8 = 2;
const CE: u8 = 3;

fn setup(ecn: Ecn) -> Setup {
    let mut setup = Setup::default();
    setup.config.ecn = ecn;
    setup.config.timestamps = false;
    setup
}

fn bits(peer: Peer, flags: TcpFlags) -> Peer {
    let flags = peer.flags | flags;
    Peer { flags, ..peer }
}

/// Segments sent since the last call: ECN bits of the TCP header, ECN field of the IP header, bytes of data.
fn marks(t: &mut Script) -> Vec<(TcpFlags, u8, usize)> {
    let sent = core::mem::take(&mut t.us.sent);
    let mask = TcpFlags::AE | TcpFlags::CWR | TcpFlags::ECE;
    let read = |buf: &pktbuf::PktBuf| {
        let header = wire::tcp::parse(buf).expect("a good segment");
        (header.flags & mask, buf.meta().ecn(), buf.len() - usize::from(header.header_len))
    };
    sent.iter().map(read).collect()
}

const NONE: TcpFlags = TcpFlags::NONE;
const ECE: TcpFlags = TcpFlags::ECE;
const CWR: TcpFlags = TcpFlags::CWR;
const REQUEST: TcpFlags = TcpFlags(TcpFlags::ECE.0 | TcpFlags::CWR.0);

/// An active open that was granted ECN, with this window.
fn connected() -> Script {
    let mut t = Script::new(setup(Ecn::Request));
    t.us.open(t.now);
    assert_eq!(marks(&mut t), [(REQUEST, 0, 0)]);
    t.inject(bits(peer("S.").seq(0).win(60_000).mss(1000), ECE));
    assert_eq!(marks(&mut t), [(NONE, 0, 0)], "an acknowledgement is not capable");
    assert_eq!(t.us.status().ecn, EcnMode::Classic);
    t
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.2
//= type=test
//# A TCP endpoint SHOULD implement ECN as described in RFC 3168 (SHLD-8).
#[test]
fn it_is_requested_and_granted() {
    connected();
    for (answer, mode) in [(NONE, EcnMode::Off), (REQUEST, EcnMode::Off), (ECE, EcnMode::Classic), (CWR, EcnMode::Off)]
    {
        let mut t = Script::new(setup(Ecn::Request));
        t.us.open(t.now);
        t.inject(bits(peer("S.").seq(0).mss(1000), answer));
        assert_eq!(t.us.status().ecn, mode, "SYN-ACK with {answer}");
        t.take();
        t.send(10);
        let capable = if mode == EcnMode::Classic { ECT_0 } else { 0 };
        assert_eq!(marks(&mut t), [(NONE, capable, 10)]);
    }
    // Without a request nothing is granted.
    let mut t = Script::new(setup(Ecn::Accept));
    t.us.open(t.now);
    assert_eq!(marks(&mut t), [(NONE, 0, 0)]);
    t.inject(bits(peer("S.").seq(0).mss(1000), ECE));
    assert_eq!(t.us.status().ecn, EcnMode::Off);
}

#[test]
fn a_listener_grants_it_when_it_may() {
    for (ecn, asked, mark, granted) in [
        (Ecn::Accept, REQUEST, 0, true),
        (Ecn::Request, REQUEST, 0, true),
        (Ecn::Off, REQUEST, 0, false),
        (Ecn::Accept, ECE, 0, false),
        (Ecn::Accept, CWR, 0, false),
        (Ecn::Accept, NONE, 0, false),
        // A SYN with a mark: the path sets marks by itself.
        (Ecn::Accept, REQUEST, CE, false),
    ] {
        let mut t = Script::new(setup(ecn));
        t.us.listening = true;
        t.inject(bits(peer("S").seq(0).mss(1000), asked).marked(mark));
        assert_eq!(marks(&mut t), [(if granted { ECE } else { NONE }, 0, 0)], "{ecn:?} {asked} {mark}");
        t.inject(peer(".").win(30_000));
        t.send(10);
        assert_eq!(marks(&mut t), [(NONE, if granted { ECT_0 } else { 0 }, 10)]);
    }
}

#[test]
fn a_mark_is_echoed_until_the_peer_has_reduced() {
    let mut t = connected();
    t.pass(ms(1000));
    t.inject(peer("P.").len(100).marked(ECT_0));
    t.inject(peer("P.").seq(101).len(100).marked(CE));
    assert_eq!(marks(&mut t).last(), Some(&(ECE, 0, 0)), "at once");
    t.inject(peer("P.").seq(201).len(100).marked(ECT_0));
    t.send(50);
    assert!(marks(&mut t).iter().all(|sent| sent.0 == ECE), "until CWR");
    t.inject(bits(peer("P.").seq(301).len(100).ack(51), CWR).marked(ECT_0));
    t.pass(ms(100));
    assert!(marks(&mut t).iter().all(|sent| sent.0 == NONE));
    // A mark on the segment with CWR begins the echo again.
    t.inject(bits(peer("P.").seq(401).len(100).ack(51), CWR).marked(CE));
    assert_eq!(marks(&mut t).last(), Some(&(ECE, 0, 0)));
    assert_eq!(t.us.count(Counter::EcnMarksIn), 2);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.2
//= type=test
//# A TCP endpoint SHOULD implement ECN as described in RFC 3168 (SHLD-8).
#[test]
fn an_echo_cuts_the_window_once_per_window_of_data() {
    let mut t = connected();
    t.send(20_000);
    let before = t.us.status().cwnd;
    assert_eq!(marks(&mut t), vec![(NONE, ECT_0, 1000); 10]);
    t.inject(bits(peer(".").ack(1001), ECE));
    let after = t.us.status();
    assert!(after.cwnd < before && after.cwnd == after.ssthresh && !after.recovering, "{} of {before}", after.cwnd);
    t.inject(bits(peer(".").ack(2001), ECE));
    t.inject(bits(peer(".").ack(5001), ECE));
    assert_eq!(t.us.status().ssthresh, after.ssthresh, "one cut");
    let sent = marks(&mut t);
    assert_eq!(sent.iter().filter(|sent| sent.0 == CWR).count(), 1, "told once: {sent:?}");
    assert_eq!(sent[0], (CWR, ECT_0, 1000), "by the next new text");
    // The next window of data.
    let end = t.us.status().unacknowledged + 5001;
    t.inject(peer(".").ack(end));
    t.send(20_000);
    marks(&mut t);
    let before = t.us.status().ssthresh;
    t.inject(bits(peer(".").ack(end + 1000), ECE));
    assert!(t.us.status().ssthresh < before);
    assert_eq!(t.us.count(Counter::CongestionEvents), 2);
}

#[test]
fn what_is_sent_again_is_not_capable() {
    let mut t = connected();
    t.send(1000);
    marks(&mut t);
    t.until_sent(ms(5000));
    assert_eq!(marks(&mut t), [(NONE, 0, 1000)]);
}

#[test]
fn a_syn_without_an_answer_is_sent_again_without_the_request() {
    for (fallback, again) in [(true, NONE), (false, REQUEST)] {
        let mut setup = setup(Ecn::Request);
        setup.config.ecn_fallback = fallback;
        let mut t = Script::new(setup);
        t.us.open(t.now);
        assert_eq!(marks(&mut t), [(REQUEST, 0, 0)]);
        t.until_sent(ms(5000));
        assert_eq!(marks(&mut t), [(again, 0, 0)]);
        // The answer to the first may still arrive; ECN stays off.
        t.inject(bits(peer("S.").seq(0).mss(1000), ECE));
        assert_eq!(t.us.status().ecn, if fallback { EcnMode::Off } else { EcnMode::Classic });
    }
}

#[test]
fn marks_and_echoes_mean_nothing_to_a_connection_without_it() {
    let mut t = Script::connected(setup(Ecn::Accept), |syn| syn);
    t.send(5000);
    t.take();
    let before = t.us.status().cwnd;
    t.inject(bits(peer("P.").ack(1001).len(10), ECE).marked(CE));
    assert!(t.us.status().cwnd >= before);
    t.inject(bits(peer("P.").seq(11).ack(1001).len(10), CWR).marked(CE));
    assert_eq!(t.read(), 20);
    assert!(marks(&mut t).iter().all(|sent| (sent.0, sent.1) == (NONE, 0)));
}

/// RFC 3168 section 6.1.2: a window of one segment cannot be cut, so the rate is reduced to one segment per time-out.
//= https://www.rfc-editor.org/rfc/rfc9438#section-4.6
//= type=test
//# Note that CUBIC MUST continue to reduce _cwnd_ in response to congestion events detected by ECN-Echo ACKs until it
//# reaches a value of 1 SMSS.
//= https://www.rfc-editor.org/rfc/rfc9438#section-4.6
//= type=test
//# If congestion events indicated by ECN-Echo ACKs persist, a sender with a _cwnd_ of 1 SMSS MUST reduce its sending rate
//# even further.
#[test]
fn echoes_cut_down_to_one_segment_and_then_the_rate() {
    let mut t = connected();
    t.send(60_000);
    let (mut una, mut windows) = (1, Vec::new());
    for _ in 0..12 {
        let sent: usize = marks(&mut t).iter().map(|mark| mark.2).sum();
        if sent == 0 {
            break;
        }
        una += sent as u32;
        t.pass(ms(100));
        t.inject(bits(peer(".").ack(una), ECE));
        windows.push(t.us.status().cwnd);
    }
    assert_eq!(windows.last(), Some(&1000), "{windows:?}");
    assert!(windows.is_sorted_by(|a, b| a >= b), "{windows:?}");
    for _ in 0..3 {
        let rto = t.us.status().rto;
        assert_eq!(t.until_sent(ms(10_000)), Some(rto), "the retransmission timer lets the next one go");
        assert_eq!(marks(&mut t), [(CWR, ECT_0, 1000)]);
        una += 1000;
        t.inject(bits(peer(".").ack(una), ECE));
    }
    assert!(t.until_sent(ms(10_000)).is_some());
    assert_eq!(t.us.status().recovery, tcp::RecoveryState::Reduced);
    marks(&mut t);
    t.inject(peer(".").ack(una + 1000));
    assert_eq!(marks(&mut t).len(), 2, "an acknowledgement without an echo ends it");
    assert_eq!(t.us.status().recovery, tcp::RecoveryState::Open);
    assert_eq!((t.us.count(Counter::Retransmits), t.us.count(Counter::Timeouts)), (0, 0));
}

/// Both ends open at once: the mode requested by this one applies to both, if the peer requests it as well.
#[test]
fn a_simultaneous_open_agrees_on_what_both_requested() {
    for (ecn, request, agreed) in [
        (Ecn::Request, REQUEST, EcnMode::Classic),
        (Ecn::Request, NONE, EcnMode::Off),
        (Ecn::Accept, REQUEST, EcnMode::Off),
        (Ecn::Off, REQUEST, EcnMode::Off),
    ] {
        let mut t = Script::new(setup(ecn));
        t.us.open(t.now);
        t.inject(bits(peer("S").seq(0).win(60_000).mss(1000), request));
        t.inject(peer("S.").seq(0).ack(1));
        assert_eq!((t.state(), t.us.status().ecn), (tcp::State::Established, agreed), "{ecn:?} and {request:?}");
    }
}
