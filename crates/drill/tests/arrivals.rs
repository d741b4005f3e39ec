//! Every kind of segment in every synchronised state, against an oracle written from RFC 9293, 3.10.7.4, and RFC 5961,
//! independent of the code: the answer, and the next state.
//!
//! Each case is a packet script of its own. Two things are left out because the stack answers them as Linux does: a
//! segment with none of SYN, RST and ACK is dropped without an answer at any sequence number, and an acknowledgement
//! without data may be at the right edge of the window.

use heddle_drill::Family;
use heddle_drill::check::check;
use heddle_drill::run::Options;

/// The window that is announced in the SYN-ACK ends here.
const EDGE: u32 = 64_241;
/// The length of the data, if any.
const DATA: u32 = 10;

const OPEN: &str = "--no_leftovers
`sysctl -q net.ipv4.tcp_invalid_ratelimit=0`
0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 bind(3, ..., ...) = 0
+0 listen(3, 1) = 0
+0 < S 0:0(0) win 32792 <mss 1000>
+0 > S. 0:0(0) ack 1 win 64240 <mss 1460>
+.01 < . 1:1(0) ack 1 win 32792
+0 accept(3, ..., ...) = 4
";
const DATA_OUT: &str = "+0 write(4, ..., 100) = 100\n+0 > P. 1:101(100) ack 1\n";
const ENDED: &str = "+0 shutdown(4, SHUT_WR) = 0\n+0 > F. 1:1(0) ack 1\n";
const ACKED: &str = "+.01 < . 1:1(0) ack 2 win 32792\n";
const CROSSED: &str = "+.01 < F. 1:1(0) ack 1 win 32792\n+0 > . 2:2(0) ack 2\n";
const PEER_ENDED: &str = "+.01 < F. 1:1(0) ack 1 win 32792\n+0~+.05 > . 1:1(0) ack 2\n";
const ENDED_LAST: &str = "+0 shutdown(4, SHUT_WR) = 0\n+0 > F. 1:1(0) ack 2\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Established,
    FinWait1,
    FinWait2,
    Closing,
    CloseWait,
    LastAck,
    /// The program may no longer see TIME-WAIT.
    TimeWait,
    Closed,
}

impl State {
    /// The condition of a script's assertion for it.
    fn seen(self) -> &'static str {
        match self {
            State::Established => "tcpi_state == TCP_ESTABLISHED",
            State::FinWait1 => "tcpi_state == TCP_FIN_WAIT1",
            State::FinWait2 => "tcpi_state == TCP_FIN_WAIT2",
            State::Closing => "tcpi_state == TCP_CLOSING",
            State::CloseWait => "tcpi_state == TCP_CLOSE_WAIT",
            State::LastAck => "tcpi_state == TCP_LAST_ACK",
            State::TimeWait => "tcpi_state == TCP_TIME_WAIT or tcpi_state == TCP_CLOSE",
            State::Closed => "tcpi_state == TCP_CLOSE",
        }
    }
}

/// A connection before the segment arrives.
#[derive(Clone, Copy)]
struct Before {
    state: State,
    script: &'static [&'static str],
    /// SND.UNA, SND.NXT and RCV.NXT.
    una: u32,
    nxt: u32,
    expected: u32,
}

const fn before(state: State, script: &'static [&'static str], una: u32, nxt: u32, expected: u32) -> Before {
    Before { state, script, una, nxt, expected }
}

const BEFORE: [Before; 7] = [
    before(State::Established, &[OPEN], 1, 1, 1),
    before(State::Established, &[OPEN, DATA_OUT], 1, 101, 1),
    before(State::FinWait1, &[OPEN, ENDED], 1, 2, 1),
    before(State::FinWait2, &[OPEN, ENDED, ACKED], 2, 2, 1),
    before(State::Closing, &[OPEN, ENDED, CROSSED], 1, 2, 2),
    before(State::CloseWait, &[OPEN, PEER_ENDED], 1, 1, 2),
    before(State::LastAck, &[OPEN, PEER_ENDED, ENDED_LAST], 1, 2, 2),
];

/// The arriving segment.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    syn: bool,
    fin: bool,
    rst: bool,
    ack: Option<u32>,
    seq: u32,
    len: u32,
}

impl Arrival {
    /// SEG.LEN.
    fn length(&self) -> u32 {
        self.len + u32::from(self.syn) + u32::from(self.fin)
    }

    fn line(&self) -> String {
        let flags = [(self.syn, 'S'), (self.fin, 'F'), (self.rst, 'R'), (self.len > 0, 'P'), (self.ack.is_some(), '.')];
        let flags: String = flags.iter().filter(|(set, _)| *set).map(|(_, letter)| letter).collect();
        let ack = self.ack.map_or_else(String::new, |ack| format!("ack {ack} "));
        let Arrival { seq, len, .. } = *self;
        format!("+.01 < {flags} {seq}:{}({len}) {ack}win 32792\n", seq.wrapping_add(len))
    }
}

impl Before {
    fn within(&self, number: u32) -> bool {
        number.wrapping_sub(self.expected) < EDGE - self.expected
    }

    /// The acknowledgement of a segment that is not accepted: SEQ=SND.NXT, ACK=RCV.NXT.
    fn acknowledges(&self, number: u32) -> String {
        format!("> . {0}:{0}(0) ack {number}\n", self.nxt)
    }

    /// The segment sent, and the next state; `None`: the RFC leaves it open.
    fn expects(&self, arrival: &Arrival) -> Option<(String, State)> {
        let challenge = || Some((format!("+0 {}", self.acknowledges(self.expected)), self.state));
        let silence = |state| Some((String::new(), state));
        // RFC 5961, 3.2: its sequence number decides, not that of its data.
        if arrival.rst {
            return match arrival.seq {
                seq if seq == self.expected => silence(State::Closed),
                seq if self.within(seq) => challenge(),
                _ => silence(self.state),
            };
        }
        // RFC 5961, 4.2.
        if arrival.syn {
            return challenge();
        }
        let last = arrival.seq.wrapping_add(arrival.length().max(1) - 1);
        let reaches_in = arrival.length() > 0 && self.within(last);
        if !(self.within(arrival.seq) || reaches_in) {
            let at_edge = arrival.length() == 0 && arrival.seq == EDGE;
            return if arrival.ack.is_none() || at_edge { None } else { challenge() };
        }
        let Some(ack) = arrival.ack else { return silence(self.state) };
        // RFC 5961, 5.2; lower numbers were sent in all cases here.
        if (self.nxt.wrapping_sub(ack) as i32) < 0 {
            return challenge();
        }
        let fin_acknowledged = self.nxt == 2 && ack == 2;
        let state = match (self.state, fin_acknowledged) {
            (State::FinWait1, true) => State::FinWait2,
            (State::Closing, true) => State::TimeWait,
            (State::LastAck, true) => State::Closed,
            (state, _) => state,
        };
        self.takes(arrival, state)
    }

    /// Data and FIN of an acceptable segment.
    fn takes(&self, arrival: &Arrival, state: State) -> Option<(String, State)> {
        if arrival.length() == 0 {
            return Some((String::new(), state));
        }
        // Nothing should follow the peer's FIN; the RFC does not specify its treatment.
        if self.expected == 2 {
            return None;
        }
        let known = self.expected.wrapping_sub(arrival.seq);
        if known > arrival.length() {
            return Some((format!("+0 {}", self.acknowledges(self.expected)), state));
        }
        let state = match state {
            State::Established if arrival.fin => State::CloseWait,
            State::FinWait1 if arrival.fin => State::Closing,
            State::FinWait2 if arrival.fin => State::TimeWait,
            state => state,
        };
        let next = self.expected + arrival.length() - known;
        Some((format!("+0~+.05 {}", self.acknowledges(next)), state))
    }

    fn arrivals(&self) -> Vec<Arrival> {
        let expected = self.expected;
        let seqs = [
            expected.wrapping_sub(70_000),
            expected.wrapping_sub(5),
            expected - 1,
            expected,
            expected + 1,
            EDGE - 1,
            EDGE,
            expected.wrapping_add(1 << 31),
        ];
        let mut acks = vec![None, Some(self.una), Some(self.nxt), Some(self.nxt + 1), Some(self.nxt + (1 << 30))];
        acks.dedup();
        let mut all = Vec::new();
        for bits in 0..8 {
            let [syn, fin, rst] = [1, 2, 4].map(|bit| bits & bit != 0);
            for seq in seqs {
                for len in [0, DATA] {
                    all.extend(acks.iter().map(|ack| Arrival { syn, fin, rst, ack: *ack, seq, len }));
                }
            }
        }
        // No flag at all has no notation of its own; PSH alone is the same to the oracle.
        all.retain(|arrival| arrival.syn || arrival.rst || arrival.ack.is_some());
        all
    }
}

fn all_are_answered_as_the_oracle_says(family: Family) {
    let arch = "up".parse().expect("a plan");
    let options = Options { family, ..Options::new(arch) };
    let (mut cases, mut faults) = (0, Vec::new());
    for before in BEFORE {
        for arrival in before.arrivals() {
            let Some((answer, state)) = before.expects(&arrival) else { continue };
            let assertion = format!("+.06 %{{ assert {}, tcpi_state }}%\n", state.seen());
            let script = [&before.script.concat(), &arrival.line(), &answer, &assertion].map(String::as_str).concat();
            cases += 1;
            if let Some(fault) = check(&script, &[arch], &options, &[]).fault {
                faults.push(format!("{:?}, {}: {}", before.state, arrival.line().trim(), fault.error));
            }
        }
    }
    assert!(cases > 3000, "only {cases} cases");
    let some = faults.iter().take(20).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(faults.is_empty(), "{} of {cases} cases:\n{some}", faults.len());
}

//= https://www.rfc-editor.org/rfc/rfc5961#section-3.2
//= type=test
//# If the RST bit is set and the sequence number exactly matches the next expected sequence number (RCV.NXT), then TCP
//# MUST reset the connection.
//= https://www.rfc-editor.org/rfc/rfc5961#section-3.2
//= type=test
//# In all other cases, where the SEQ-field does not match and is outside the window, the receiver MUST silently discard
//# the segment.
//= https://www.rfc-editor.org/rfc/rfc5961#section-4.2
//= type=test
//# If the SYN bit is set, irrespective of the sequence number, TCP MUST send an ACK (also referred to as challenge ACK)
//# to the remote peer:
//= https://www.rfc-editor.org/rfc/rfc5961#section-5.2
//= type=test
//# All incoming segments whose ACK value doesn't satisfy the above condition MUST be discarded and an ACK sent back.
#[test]
fn every_segment_in_every_state_over_ipv4() {
    all_are_answered_as_the_oracle_says(Family::V4);
}

#[test]
fn every_segment_in_every_state_over_ipv6() {
    all_are_answered_as_the_oracle_says(Family::V6);
}
