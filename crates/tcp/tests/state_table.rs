//! Every combination of the six control bits in every one of the eleven states, against RFC 9293 section 3.10.7 as it
//! reads with RFC 5961 and RFC 1337: the answer, and the next state.

mod support;

use std::time::Duration;

use support::endpoint::Setup;
use support::ms;
use support::script::{Script, peer};
use tcp::State;
use wire::tcp::TcpFlags;

/// The answer to a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Nothing,
    Ack,
    /// An acknowledgement that is delayed (RFC 9293 section 3.8.6.3: by less than half a second).
    DelayedAck,
    SynAck,
    Reset,
}

/// For how long the acknowledgement of a FIN waits for the user's own.
const DELAY: Duration = Duration::from_millis(40);

/// A connection in `state`, and RCV.NXT relative to the peer's initial sequence number. All that the peer sent is
/// acknowledged.
fn reach(state: State) -> (Script, u32) {
    let mut t = match state {
        State::Closed | State::Listen | State::SynSent | State::SynReceived => Script::new(Setup::default()),
        _ => Script::connected(Setup::default(), |syn| syn),
    };
    let before_fin = 1;
    match state {
        State::Closed | State::Established => {}
        State::Listen => t.us.listening = true,
        State::SynSent => t.us.open(t.now),
        State::SynReceived => {
            t.us.listening = true;
            t.inject(peer("S").seq(0));
        }
        State::FinWait1 => t.run(tcp::Close),
        State::FinWait2 => {
            t.run(tcp::Close);
            t.inject(peer(".").ack(2));
        }
        State::CloseWait => {
            t.inject(peer("F."));
            t.pass(DELAY);
        }
        State::Closing => {
            t.run(tcp::Close);
            t.inject(peer("F."));
        }
        State::LastAck => {
            t.inject(peer("F."));
            t.run(tcp::Close);
        }
        State::TimeWait => {
            t.run(tcp::Close);
            t.inject(peer("F.").ack(2));
        }
    }
    t.take();
    let after_fin = matches!(state, State::CloseWait | State::Closing | State::LastAck | State::TimeWait);
    (t, if after_fin { 2 } else { before_fin })
}

/// The RFC's table for a segment without data at RCV.NXT that acknowledges our SYN and nothing beyond it.
fn expected(state: State, flags: TcpFlags) -> (Answer, State) {
    let has = |flag| flags.contains(flag);
    let (fin, syn) = (has(TcpFlags::FIN), has(TcpFlags::SYN));
    let (rst, ack) = (has(TcpFlags::RST), has(TcpFlags::ACK));
    let nothing = (Answer::Nothing, state);
    match state {
        // Section 3.10.7.1.
        State::Closed if rst => nothing,
        State::Closed => (Answer::Reset, state),
        // Section 3.10.7.2, where a SYN with FIN is dropped: the RFC would keep the FIN, Linux drops it.
        State::Listen if rst => nothing,
        State::Listen if ack => (Answer::Reset, state),
        State::Listen if syn && fin => nothing,
        State::Listen if syn => (Answer::SynAck, State::SynReceived),
        State::Listen => nothing,
        // Section 3.10.7.3.
        State::SynSent if rst && ack => (Answer::Nothing, State::Closed),
        State::SynSent if rst || !syn => nothing,
        State::SynSent if ack && fin => (Answer::Ack, State::CloseWait),
        State::SynSent if ack => (Answer::Ack, State::Established),
        State::SynSent => (Answer::SynAck, State::SynReceived),
        // Section 3.10.7.4, and RFC 1337: the RST bit, the SYN bit, the ACK bit, the FIN bit.
        State::TimeWait if rst => nothing,
        // RFC 6191: RCV.NXT is larger than the number of the FIN, so the SYN begins a new connection, for which there
        // is no listener.
        _ if reopens(state, flags) => (Answer::Reset, State::Listen),
        State::SynReceived if rst => (Answer::Nothing, State::Listen),
        _ if rst => (Answer::Nothing, State::Closed),
        _ if syn => (Answer::Ack, state),
        _ if !ack => nothing,
        State::SynReceived if !fin => (Answer::Nothing, State::Established),
        _ if !fin => nothing,
        State::SynReceived | State::Established => (Answer::DelayedAck, State::CloseWait),
        State::FinWait1 => (Answer::Ack, State::Closing),
        State::FinWait2 => (Answer::Ack, State::TimeWait),
        _ => (Answer::Ack, state),
    }
}

const STATES: [State; 11] = [
    State::Closed,
    State::Listen,
    State::SynSent,
    State::SynReceived,
    State::Established,
    State::FinWait1,
    State::FinWait2,
    State::CloseWait,
    State::Closing,
    State::LastAck,
    State::TimeWait,
];

fn answer(t: &mut Script) -> Answer {
    match answer_at_once(t) {
        Answer::Nothing if t.us.driver.is_some() => {
            t.pass(DELAY);
            if answer_at_once(t) == Answer::Ack { Answer::DelayedAck } else { Answer::Nothing }
        }
        other => other,
    }
}

fn answer_at_once(t: &mut Script) -> Answer {
    let sent = core::mem::take(&mut t.us.sent);
    assert!(sent.len() <= 1, "one segment is answered by one");
    sent.first().map_or(Answer::Nothing, |segment| {
        let flags = wire::tcp::parse(segment).expect("a good segment").flags;
        match (flags.contains(TcpFlags::RST), flags.contains(TcpFlags::SYN)) {
            (true, _) => Answer::Reset,
            (_, true) => Answer::SynAck,
            _ => Answer::Ack,
        }
    })
}

/// All control bits in these states, with a segment without data at RCV.NXT + `offset`: compares the answer and the
/// next state with `expected`, if it returns any.
fn compare(states: &[State], offset: u32, expected: impl Fn(State, TcpFlags) -> Option<(Answer, State)>) {
    let mut differ = Vec::new();
    for &state in states {
        for bits in 0..64 {
            let flags = TcpFlags(bits);
            let Some(expected) = expected(state, flags) else { continue };
            let (mut t, next) = reach(state);
            let segment = peer("").seq(next.wrapping_add(offset)).ack(1);
            t.inject(support::script::Peer { flags, ..segment });
            let after = if state == State::Closed { State::Closed } else { t.state() };
            let found = (answer(&mut t), after);
            if found != expected {
                differ.push(format!("{state} {flags} at {offset}: {found:?}, not {expected:?}"));
            }
        }
    }
    assert!(differ.is_empty(), "{differ:#?}");
}

//= https://www.rfc-editor.org/rfc/rfc5961#section-3.2
//= type=test
//# If the RST bit is set and the sequence number exactly matches the next expected sequence number (RCV.NXT), then TCP
//# MUST reset the connection.
//= https://www.rfc-editor.org/rfc/rfc5961#section-4.2
//= type=test
//# If the SYN bit is set, irrespective of the sequence number, TCP MUST send an ACK (also referred to as challenge ACK)
//# to the remote peer:
#[test]
fn sixty_four_combinations_in_eleven_states() {
    compare(&STATES, 0, |state, flags| Some(expected(state, flags)));
}

/// A SYN that begins a new incarnation of a connection in TIME-WAIT.
fn reopens(state: State, flags: TcpFlags) -> bool {
    let others = TcpFlags::ACK | TcpFlags::RST | TcpFlags::FIN;
    state == State::TimeWait && flags.contains(TcpFlags::SYN) && !flags.intersects(others)
}

/// First the sequence number: a segment that is not acceptable is answered, unless it is a reset, and changes nothing.
/// RCV.WND is at most 65 535 in all these states.
//= https://www.rfc-editor.org/rfc/rfc5961#section-3.2
//= type=test
//# In all other cases, where the SEQ-field does not match and is outside the window, the receiver MUST silently discard
//# the segment.
//= https://www.rfc-editor.org/rfc/rfc5961#section-4.2
//= type=test
//# If the SYN bit is set, irrespective of the sequence number, TCP MUST send an ACK (also referred to as challenge ACK)
//# to the remote peer:
#[test]
fn sixty_four_combinations_outside_the_window() {
    for offset in [65_536, 1 << 20, 1 << 30, 0x8000_0001, u32::MAX - 100_000, u32::MAX - 10] {
        compare(&STATES[3..], offset, |state, flags| {
            let ahead = offset < 1 << 31;
            if ahead && reopens(state, flags) {
                return None;
            }
            let answer = if flags.contains(TcpFlags::RST) { Answer::Nothing } else { Answer::Ack };
            Some((answer, state))
        });
    }
}

/// The same right below RCV.NXT, the place of the peer's SYN in SYN-RECEIVED: only a repeated SYN gets the SYN-ACK
/// again.
#[test]
fn sixty_four_combinations_below_the_window() {
    let controls = TcpFlags::SYN | TcpFlags::ACK | TcpFlags::RST | TcpFlags::FIN;
    compare(&STATES[3..], u32::MAX, |state, flags| {
        let repeats = state == State::SynReceived && flags.intersection(controls) == TcpFlags::SYN;
        let answer = match () {
            () if flags.contains(TcpFlags::RST) => Answer::Nothing,
            () if repeats => Answer::SynAck,
            () => Answer::Ack,
        };
        Some((answer, state))
    });
}

/// A segment that is not acceptable is answered (RFC 9293 section 3.10.7.4) while the acknowledgement of the FIN is delayed
/// as well, and the answer acknowledges the FIN. A reset is not answered, and does not end the delay.
#[test]
fn a_delayed_acknowledgement_of_a_fin_delays_no_answer() {
    let offsets = [u32::MAX, u32::MAX - 10, 65_536, 1 << 30];
    for (offset, bits) in offsets.into_iter().flat_map(|at| (0..64).map(move |bits| (at, bits))) {
        let mut t = Script::connected(Setup::default(), |syn| syn);
        t.inject(peer("F."));
        t.expect(&[]);
        let flags = TcpFlags(bits);
        t.inject(support::script::Peer { flags, ..peer("").seq(2u32.wrapping_add(offset)).ack(1) });
        let sent = t.take();
        let later = t.until_sent(ms(499));
        if flags.contains(TcpFlags::RST) {
            assert_eq!((sent.len(), later), (0, Some(DELAY)), "{flags} at {offset}");
        } else {
            assert_eq!((sent, later), (vec![". 1:1(0) ack 2 win 65534".to_owned()], None), "{flags} at {offset}");
        }
        assert_eq!(t.state(), State::CloseWait);
    }
}

/// Inside the window, but not at RCV.NXT, a reset and a SYN are challenged, and a segment without ACK is dropped.
//= https://www.rfc-editor.org/rfc/rfc5961#section-3.2
//= type=test
//# If the RST bit is set and the sequence number does not exactly match the next expected sequence value, yet is within
//# the current receive window (RCV.NXT < SEG.SEQ < RCV.NXT+RCV.WND), TCP MUST send an acknowledgment (challenge ACK):
#[test]
fn sixty_four_combinations_inside_the_window() {
    for offset in [1, 5, 1000, 65_533] {
        compare(&STATES[3..], offset, |state, flags| {
            let has = |flag| flags.contains(flag);
            match state {
                _ if reopens(state, flags) => None,
                _ if has(TcpFlags::RST) || has(TcpFlags::SYN) => Some((Answer::Ack, state)),
                _ if !has(TcpFlags::ACK) => Some((Answer::Nothing, state)),
                _ => None,
            }
        });
    }
}

/// Where the window ends, to the byte, and where it begins while an acknowledgement is delayed.
//= https://www.rfc-editor.org/rfc/rfc5961#section-3.2
//= type=test
//# In all other cases, where the SEQ-field does not match and is outside the window, the receiver MUST silently discard
//# the segment.
#[test]
fn a_reset_next_to_the_window_is_not_answered() {
    let mut setup = Setup::default();
    setup.config.quick_acks = 0;
    for (scaled, seq, answered) in [
        // The SYN-ACK advertised 65 535 bytes from 1 on, and nothing since: 100 have arrived, unacknowledged.
        (false, 65_535, true),
        (false, 65_536, false),
        (false, 65_537, false),
        (true, 65_535, true),
        (true, 65_536, false),
        (true, 65_600, false),
        (true, 1, false),
        (true, 100, false),
        (true, 102, true),
    ] {
        for with in ["R", "RP", "RF", "RS", "R."] {
            let mut t = Script::accepted(setup.clone(), |syn| if scaled { syn.scale(7) } else { syn });
            t.inject(peer("P.").len(100));
            t.expect(&[]);
            t.inject(peer(with).seq(seq));
            assert_eq!(t.take().len(), usize::from(answered), "{with} at {seq}, scaled: {scaled}");
            assert_eq!(t.state(), State::Established);
            t.inject(peer(with).seq(101));
            assert_eq!(t.state(), State::Closed, "{with} at RCV.NXT");
        }
    }
}

/// The states of an active open after a SYN that crossed ours: RST, SYN, ACK and FIN in this order, too, and no
/// listener to return to.
#[test]
fn sixty_four_combinations_while_both_open() {
    for bits in 0..64 {
        let flags = TcpFlags(bits);
        let has = |flag| flags.contains(flag);
        let mut t = Script::new(Setup::default());
        t.us.open(t.now);
        t.inject(peer("S").seq(0));
        assert_eq!(t.state(), State::SynReceived);
        t.take();
        t.inject(support::script::Peer { flags, ..peer("").seq(1).ack(1) });
        let expected = if has(TcpFlags::RST) {
            (Answer::Nothing, State::Closed)
        } else if has(TcpFlags::SYN) {
            (Answer::Ack, State::SynReceived)
        } else if !has(TcpFlags::ACK) {
            (Answer::Nothing, State::SynReceived)
        } else if has(TcpFlags::FIN) {
            (Answer::DelayedAck, State::CloseWait)
        } else {
            (Answer::Nothing, State::Established)
        };
        assert_eq!((answer(&mut t), t.state()), expected, "{flags}");
    }
}

/// Blind attackers (RFC 5961): a segment in the window but not exact changes no state, and forged data is never read.
#[test]
fn blind_segments_change_nothing_in_any_synchronised_state() {
    for state in &STATES[3..] {
        for (flags, offset, data) in [
            ("R", 1, 0),
            ("R", 1000, 0),
            ("S", 0, 0),
            ("S", 1000, 0),
            ("R.", 50_000, 0),
            ("P.", 100_000, 4),
            ("P", 0, 4),
        ] {
            // There it may begin a new incarnation (RFC 6191).
            if *state == State::TimeWait && flags == "S" {
                continue;
            }
            let (mut t, next) = reach(*state);
            t.inject(peer(flags).seq(next + offset).len(data));
            assert_eq!(t.state(), *state, "{flags} at RCV.NXT + {offset}");
            assert!(t.take().len() <= 1);
            if t.us.driver.is_some() {
                assert_eq!(t.read(), 0);
            }
        }
        // An acknowledgement of unsent data.
        let (mut t, next) = reach(*state);
        t.inject(peer("P.").seq(next).ack(5000).len(4));
        assert_eq!(t.state(), *state);
        if t.us.driver.is_some() {
            assert_eq!(t.read(), 0);
        }
    }
}

/// Challenge acknowledgements are limited in the handshake as well, though there is no PCB yet.
#[test]
fn challenges_of_a_half_open_connection_are_limited() {
    let (mut t, _) = reach(State::SynReceived);
    for _ in 0..400 {
        t.inject(peer("S").seq(7));
        t.inject(peer("R").seq(7));
        t.pass(support::ms(12));
    }
    let challenges = t.take().into_iter().filter(|line| line.starts_with(". ")).count();
    assert!((5..=10).contains(&challenges), "{challenges} in 4.8 s");
}
