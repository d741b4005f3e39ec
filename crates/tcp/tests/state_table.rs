//! Every combination of the six control bits in every one of the eleven states, against RFC 9293 section 3.10.7 as it
//! reads with RFC 5961 and RFC 1337: what is answered, and which state follows.

mod support;

use support::endpoint::Setup;
use support::script::{Script, peer};
use tcp::State;
use wire::tcp::TcpFlags;

/// What is sent in answer to a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Nothing,
    Ack,
    SynAck,
    Reset,
}

/// A connection in `state`, and RCV.NXT relative to the peer's initial sequence number.
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
        State::CloseWait => t.inject(peer("F.")),
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

/// The RFC's table for a segment without text at RCV.NXT that acknowledges our SYN and nothing beyond it.
fn expected(state: State, flags: TcpFlags) -> (Answer, State) {
    let has = |flag| flags.contains(flag);
    let (fin, syn) = (has(TcpFlags::FIN), has(TcpFlags::SYN));
    let (rst, ack) = (has(TcpFlags::RST), has(TcpFlags::ACK));
    let nothing = (Answer::Nothing, state);
    match state {
        // Section 3.10.7.1.
        State::Closed if rst => nothing,
        State::Closed => (Answer::Reset, state),
        // Section 3.10.7.2.
        State::Listen if rst => nothing,
        State::Listen if ack => (Answer::Reset, state),
        State::Listen if syn && fin => nothing,
        State::Listen if syn => (Answer::SynAck, State::SynReceived),
        State::Listen => nothing,
        // Section 3.10.7.3.
        State::SynSent if rst && ack => (Answer::Nothing, State::Closed),
        State::SynSent if rst || !syn || fin && !ack => nothing,
        State::SynSent if ack && fin => (Answer::Ack, State::CloseWait),
        State::SynSent if ack => (Answer::Ack, State::Established),
        State::SynSent => (Answer::SynAck, State::SynReceived),
        // Section 3.10.7.4: combinations that make no sense, then its steps.
        _ if syn && (fin || rst) || !(syn || rst || ack || fin) => nothing,
        State::TimeWait if rst => nothing,
        State::SynReceived if rst => (Answer::Nothing, State::Listen),
        _ if rst => (Answer::Nothing, State::Closed),
        _ if syn => (Answer::Ack, state),
        _ if !ack => nothing,
        State::SynReceived if !fin => (Answer::Nothing, State::Established),
        _ if !fin => nothing,
        State::SynReceived | State::Established => (Answer::Ack, State::CloseWait),
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

#[test]
fn sixty_four_combinations_in_eleven_states() {
    let mut differ = Vec::new();
    for state in STATES {
        for bits in 0..64 {
            let (mut t, next) = reach(state);
            let flags = TcpFlags(bits);
            let segment = peer("").seq(next).ack(1);
            t.inject(support::script::Peer { flags, ..segment });
            let after = if state == State::Closed { State::Closed } else { t.state() };
            let found = (answer(&mut t), after);
            if found != expected(state, flags) {
                differ.push(format!("{state} {flags}: {found:?}, not {:?}", expected(state, flags)));
            }
        }
    }
    assert!(differ.is_empty(), "{differ:#?}");
}

/// Blind attackers (RFC 5961): whatever is in the window and not exact changes no state, and nobody reads forged text.
#[test]
fn blind_segments_change_nothing_in_any_synchronised_state() {
    for state in &STATES[3..] {
        for (flags, offset, text) in [
            ("R", 1, 0),
            ("R", 1000, 0),
            ("S", 0, 0),
            ("S", 1000, 0),
            ("R.", 50_000, 0),
            ("P.", 100_000, 4),
            ("P", 0, 4),
        ] {
            // There it may begin a new incarnation (RFC 6191).
            if *state == State::TimeWait && flags == "S" && offset > 0 {
                continue;
            }
            let (mut t, next) = reach(*state);
            t.inject(peer(flags).seq(next + offset).len(text));
            assert_eq!(t.state(), *state, "{flags} at RCV.NXT + {offset}");
            assert!(t.take().len() <= 1);
            if t.us.driver.is_some() {
                assert_eq!(t.read(), 0);
            }
        }
        // An acknowledgement of what was never sent.
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
