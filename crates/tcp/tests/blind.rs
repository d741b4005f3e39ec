//! Blind attackers (RFC 5961, RFC 9293 section 3.10.7.4): segments forged without seeing the connection.

mod support;

use observe::{Counter, DropReason};
use support::endpoint::Setup;
use support::ms;
use support::script::{Script, peer};
use tcp::{Disposition, State};

fn plain() -> Script {
    Script::connected(Setup::default(), |syn| syn)
}

fn dropped(t: &Script) -> Option<DropReason> {
    match t.us.last {
        Some(Disposition::Dropped(reason)) => Some(reason),
        _ => None,
    }
}

//= https://www.rfc-editor.org/rfc/rfc5961#section-3.2
//= type=test
//# If the RST bit is set and the sequence number exactly matches the next expected sequence number (RCV.NXT), then TCP
//# MUST reset the connection.
//= https://www.rfc-editor.org/rfc/rfc5961#section-3.2
//= type=test
//# If the RST bit is set and the sequence number does not exactly match the next expected sequence value, yet is within
//# the current receive window (RCV.NXT < SEG.SEQ < RCV.NXT+RCV.WND), TCP MUST send an acknowledgment (challenge ACK):
//= https://www.rfc-editor.org/rfc/rfc5961#section-3.2
//= type=test
//# After sending the challenge ACK, TCP MUST drop the unacceptable segment and stop processing the incoming packet
//# further.
//= https://www.rfc-editor.org/rfc/rfc5961#section-3.2
//= type=test
//# In all other cases, where the SEQ-field does not match and is outside the window, the receiver MUST silently discard
//# the segment.
//= https://www.rfc-editor.org/rfc/rfc5961#section-4.2
//= type=test
//# Upon receipt of a valid RST, the local TCP endpoint MUST terminate its connection.
#[test]
fn only_an_exact_reset_resets() {
    let mut t = plain();
    t.inject(peer("R").seq(2));
    t.expect(&[". 1:1(0) ack 1 win 65535"]);
    assert_eq!((t.state(), dropped(&t)), (State::Established, Some(DropReason::TcpBadReset)));
    t.inject(peer("R").seq(0));
    t.inject(peer("R").seq(65_537));
    t.inject(peer("R").seq(200_000));
    t.expect(&[]);
    assert_eq!(dropped(&t), Some(DropReason::TcpOutOfWindow));
    t.inject(peer("R").seq(1));
    assert_eq!(t.state(), State::Closed);
}

//= https://www.rfc-editor.org/rfc/rfc5961#section-4.2
//= type=test
//# If the SYN bit is set, irrespective of the sequence number, TCP MUST send an ACK (also referred to as challenge ACK)
//# to the remote peer:
#[test]
fn a_syn_is_challenged_wherever_it_falls() {
    for seq in [0, 1, 5000, 200_000] {
        for flags in ["S", "SF", "S.", "SF.", "SFUP", "SFUP."] {
            let mut t = plain();
            t.inject(peer(flags).seq(seq).len(4));
            t.expect(&[". 1:1(0) ack 1 win 65535"]);
            assert_eq!((t.state(), t.read()), (State::Established, 0), "{flags} at {seq}");
        }
    }
}

#[test]
fn challenges_are_limited_per_connection() {
    let mut t = plain();
    for _ in 0..400 {
        t.inject(peer("R").seq(2));
        t.inject(peer("S").seq(2));
        t.pass(ms(12));
    }
    let sent = t.take().len();
    assert!((9..=10).contains(&sent), "{sent} in 4.8 s");
    assert_eq!(t.us.count(Counter::ChallengeAcksOut), sent as u64);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
//= type=test
//# RFC 5961 [9], Section 5 describes a potential blind data injection attack, and mitigation that implementations MAY
//# choose to include (MAY-12).
//= https://www.rfc-editor.org/rfc/rfc5961#section-5.2
//= type=test
//# TCP stacks that implement this mitigation MUST add an additional input check to any incoming segment.
//= https://www.rfc-editor.org/rfc/rfc5961#section-5.2
//= type=test
//# All incoming segments whose ACK value doesn't satisfy the above condition MUST be discarded and an ACK sent back.
#[test]
fn data_with_an_impossible_acknowledgement_is_never_read() {
    for ack in [2, 70_000, 1u32.wrapping_sub(70_000), 1u32.wrapping_add(1 << 31), 0u32.wrapping_sub(1 << 30)] {
        let mut t = plain();
        t.inject(peer("P.").ack(ack).len(4));
        assert_eq!(t.read(), 0, "ACK {ack}");
        assert_eq!(dropped(&t), Some(DropReason::TcpBadAck));
        assert_eq!(t.take().len(), 1);
    }
    // Reordering makes segments a little old.
    let mut t = plain();
    t.inject(peer("P.").ack(0).len(4));
    assert_eq!(t.read(), 4);
}

/// Bytes before the initial sequence number were never sent, and cannot be acknowledged, however large a window the
/// peer once offered: neither while nothing, some or all of our data is acknowledged, nor when our FIN is.
//= https://www.rfc-editor.org/rfc/rfc5961#section-5.2
//= type=test
//# All incoming segments whose ACK value doesn't satisfy the above condition MUST be discarded and an ACK sent back.
#[test]
fn nothing_before_the_beginning_is_acknowledged() {
    let stages: [fn(&mut Script); 5] = [
        |_| {},
        |t| assert_eq!(t.send(3000), 3000),
        |t| {
            t.send(3000);
            t.inject(peer(".").ack(1001));
        },
        |t| {
            t.send(3000);
            t.inject(peer(".").ack(3001));
        },
        |t| {
            t.send(3000);
            t.run(tcp::Shutdown::Write).unwrap();
            t.inject(peer(".").ack(3002));
        },
    ];
    for prepare in stages {
        for age in [1, 2, 1000, 50_000, 59_999] {
            let mut t = plain();
            prepare(&mut t);
            t.take();
            t.inject(peer("P.").ack(0u32.wrapping_sub(age)).len(4));
            assert_eq!((t.read(), dropped(&t)), (0, Some(DropReason::TcpBadAck)), "{age} below the SYN");
            assert_eq!(t.take().len(), 1);
            // All that was sent may be acknowledged again.
            t.inject(peer("P.").ack(1).len(4));
            assert_eq!(t.read(), 4);
        }
    }
}

#[test]
fn data_without_ack_is_dropped() {
    let mut t = plain();
    t.inject(peer("P").len(4));
    assert_eq!((t.read(), dropped(&t)), (0, Some(DropReason::TcpNoAck)));
    t.inject(peer("F").len(4));
    assert_eq!((t.read(), dropped(&t)), (0, Some(DropReason::TcpNoAck)));
}

#[test]
fn empty_segments_outside_the_window_are_answered_within_the_limit() {
    let mut t = plain();
    for _ in 0..100 {
        t.inject(peer(".").seq(500_000));
    }
    assert_eq!(t.take().len(), 1);
}

//= https://www.rfc-editor.org/rfc/rfc5961#section-4.2
//= type=test
//# After sending the acknowledgment, TCP MUST drop the unacceptable segment and stop processing further.
#[test]
fn every_combination_of_flags_in_every_state() {
    type Reach = fn() -> Script;
    let reach: [Reach; 9] = [
        || {
            let mut t = Script::new(Setup::default());
            t.us.open(t.now);
            t
        },
        || {
            let mut t = Script::new(Setup::default());
            t.us.listening = true;
            t.inject(peer("S").seq(0));
            t
        },
        plain,
        || {
            let mut t = plain();
            t.run(tcp::Close);
            t
        },
        || {
            let mut t = plain();
            t.run(tcp::Close);
            t.inject(peer(".").ack(2));
            t
        },
        || {
            let mut t = plain();
            t.inject(peer("F."));
            t
        },
        || {
            let mut t = plain();
            t.run(tcp::Close);
            t.inject(peer("F."));
            t
        },
        || {
            let mut t = plain();
            t.inject(peer("F."));
            t.run(tcp::Close);
            t
        },
        || {
            let mut t = plain();
            t.run(tcp::Close);
            t.inject(peer("F.").ack(2));
            t
        },
    ];
    for bits in 0..64u8 {
        for make in &reach {
            for (seq, ack) in [(0, 0), (1, 1), (2, 2), (3, 1), (100_000, 1), (1, 100_000)] {
                let mut t = make();
                let before = t.state();
                t.take();
                let mut segment = peer("").seq(seq).ack(ack).len(3).urgent(70);
                segment.flags = wire::tcp::TcpFlags(bits.into());
                t.inject(segment);
                let sent = t.take();
                assert!(sent.len() <= 2, "one segment is answered by {sent:?}");
                let syn = bits & 2 != 0;
                let rst = bits & 4 != 0;
                // An established connection is ended only by an exact reset, or by data after close.
                if before.is_synchronised() && t.state() == State::Closed && !rst {
                    assert!(matches!(before, State::FinWait1 | State::FinWait2 | State::LastAck), "{before} {bits:#x}");
                }
                assert!(!(rst && !sent.is_empty() && before == State::SynSent), "a reset is never answered here");
                if syn && !rst && before.is_synchronised() && before != State::TimeWait {
                    assert_eq!(t.state(), before, "a SYN changes nothing, flags {bits:#x}");
                }
            }
        }
    }
}

/// A forged segment in the window whose acknowledgement is impossible changes nothing: neither its data nor its
/// timestamp is kept, or PAWS would refuse the peer's own segments.
#[test]
fn an_impossible_acknowledgement_does_not_move_the_timestamp() {
    let mut setup = Setup::default();
    setup.config.quick_acks = 0;
    let mut t = Script::accepted(setup, |syn| syn.ts(700, 0));
    t.inject(peer(".").ack(90_000).len(100).ts(2_000_000_000, 0));
    t.take();
    t.inject(peer("P.").len(100).ts(701, 0));
    assert_eq!(t.read(), 100, "the peer's own text is taken");
}

/// Segments sent after an acknowledgement without data echo its timestamp (RFC 7323 section 4.3).
#[test]
fn the_timestamp_of_an_acknowledgement_is_echoed() {
    let mut t = Script::accepted(Setup::default(), |syn| syn.ts(700, 0));
    t.send(10);
    t.take();
    t.inject(peer(".").ack(11).ts(750, 0));
    t.send(10);
    let sent = t.take();
    assert!(sent[0].contains(" 750>"), "{sent:?}");
}
