//! The states of a connection and the table of transitions (RFC 9293 section 3.3.2), as data.
//!
//! The authoritative state is `HeaderIn::state`; the receive window and the send window have copies, because their
//! hold-sets are used alone. All three change together, in `PcbMut::enter`, the only place that assigns a state after a
//! PCB was made.
//!
//! Figure 5 of the RFC, with LISTEN drawn although no PCB is ever in it (a listener is a [`crate::ListenParams`]):
//!
//! ```text
//!                              +---------+ ---------\      active OPEN
//!                              |  CLOSED |            \    -----------
//!                              +---------+<---------\   \   snd SYN
//!                 passive OPEN   |     ^              \   \
//!                 ------------   |     | CLOSE          \   \
//!                                V     |                  \   \
//!                              +---------+            CLOSE |    \
//!                              |  LISTEN |         -------- |     |
//!                              +---------+                  |     |
//!                   rcv SYN      |     |                    |     |
//!                  -----------   |     |                    |     V
//! +---------+      snd SYN,ACK  /       \                  +---------+
//! |         |<-----------------           ---------------->|         |
//! |   SYN   |                    rcv SYN                   |   SYN   |
//! |   RCVD  |<---------------------------------------------|   SENT  |
//! |         |                  snd SYN,ACK                 |         |
//! |         |------------------           -----------------|         |
//! +---------+   rcv ACK of SYN  \       /  rcv SYN,ACK     +---------+
//!   |         --------------     |     |   -----------
//!   |                            V     V    snd ACK
//!   |  CLOSE                   +---------+
//!   | -------                  |  ESTAB  |
//!   | snd FIN                  +---------+
//!   |                   CLOSE    |     |    rcv FIN
//!   V                  -------   |     |    -------
//! +---------+          snd FIN  /       \   snd ACK          +---------+
//! |  FIN    |<----------------           ------------------->|  CLOSE  |
//! | WAIT-1  |------------------                              |   WAIT  |
//! +---------+          rcv FIN \                             +---------+
//!   | rcv ACK of FIN   -------  |                             CLOSE  |
//!   | --------------   snd ACK  |                            ------- |
//!   V                           V                            snd FIN V
//! +---------+               +---------+                      +---------+
//! |FINWAIT-2|               | CLOSING |                      | LAST-ACK|
//! +---------+               +---------+                      +---------+
//!   |              rcv ACK of FIN |                 rcv ACK of FIN |
//!   | rcv FIN      -------------- |    Timeout=2MSL -------------- |
//!   | -------             x       V    ------------        x       V
//!    \ snd ACK              +---------+delete TCB          +---------+
//!      -------------------->|TIME-WAIT|------------------->| CLOSED  |
//!                           +---------+                    +---------+
//! ```

use core::fmt;

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum State {
    /// No connection.
    Closed,
    /// Waiting for a SYN. Only listeners are in it, never a PCB.
    Listen,
    /// Our SYN is out.
    SynSent,
    /// Both SYNs have been seen, ours is not acknowledged.
    SynReceived,
    /// Data flows.
    Established,
    /// We closed; our FIN is not acknowledged.
    FinWait1,
    /// We closed; our FIN is acknowledged, the peer may still send.
    FinWait2,
    /// The peer closed; we may still send.
    CloseWait,
    /// Both closed at once; our FIN is not acknowledged.
    Closing,
    /// Both closed, the peer first; our FIN is not acknowledged.
    LastAck,
    /// Both closed, we first; old segments expire.
    TimeWait,
}

/// The cause of a change of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Cause {
    /// The user opens towards a peer.
    ActiveOpen,
    /// The user listens.
    PassiveOpen,
    /// A SYN without an acceptable acknowledgement arrives.
    Syn,
    /// A SYN that acknowledges our SYN arrives.
    SynAck,
    /// Our SYN is acknowledged.
    AckOfSyn,
    /// The user closes (sends its FIN).
    Close,
    /// The peer's FIN is reached in sequence.
    Fin,
    /// Our FIN is acknowledged.
    AckOfFin,
    /// The time of TIME-WAIT (or of an orphaned FIN-WAIT-2) is over.
    Expired,
    /// A valid RST arrives, the user aborts, or retransmission gives up.
    Reset,
}

/// Every transition. A pair that is not listed does not change the state.
pub const TRANSITIONS: &[(State, Cause, State)] = {
    use Cause as C;
    use State as S;
    &[
        (S::Closed, C::PassiveOpen, S::Listen),
        (S::Closed, C::ActiveOpen, S::SynSent),
        (S::Listen, C::Syn, S::SynReceived),
        (S::Listen, C::Close, S::Closed),
        (S::SynSent, C::Syn, S::SynReceived),
        (S::SynSent, C::SynAck, S::Established),
        (S::SynSent, C::Close, S::Closed),
        (S::SynSent, C::Reset, S::Closed),
        (S::SynReceived, C::AckOfSyn, S::Established),
        (S::SynReceived, C::Close, S::FinWait1),
        (S::SynReceived, C::Reset, S::Closed),
        (S::Established, C::Close, S::FinWait1),
        (S::Established, C::Fin, S::CloseWait),
        (S::Established, C::Reset, S::Closed),
        (S::FinWait1, C::AckOfFin, S::FinWait2),
        (S::FinWait1, C::Fin, S::Closing),
        (S::FinWait1, C::Reset, S::Closed),
        (S::FinWait2, C::Fin, S::TimeWait),
        (S::FinWait2, C::Expired, S::Closed),
        (S::FinWait2, C::Reset, S::Closed),
        (S::CloseWait, C::Close, S::LastAck),
        (S::CloseWait, C::Reset, S::Closed),
        (S::Closing, C::AckOfFin, S::TimeWait),
        (S::Closing, C::Reset, S::Closed),
        (S::LastAck, C::AckOfFin, S::Closed),
        (S::LastAck, C::Reset, S::Closed),
        (S::TimeWait, C::Expired, S::Closed),
        (S::TimeWait, C::Reset, S::Closed),
    ]
};

/// [`TRANSITIONS`] by state and cause.
static NEXT: [[Option<State>; Cause::Reset as usize + 1]; State::TimeWait as usize + 1] = {
    let mut next = [[None; Cause::Reset as usize + 1]; State::TimeWait as usize + 1];
    let mut row = 0;
    while row < TRANSITIONS.len() {
        let (from, by, to) = TRANSITIONS[row];
        next[from as usize][by as usize] = Some(to);
        row += 1;
    }
    next
};

impl State {
    /// The state after `cause`, or `None` if the table has no such transition.
    #[inline]
    pub fn after(self, cause: Cause) -> Option<State> {
        NEXT[self as usize][cause as usize]
    }

    /// Whether segments with our data or FIN may be (re)transmitted.
    #[inline]
    pub const fn may_transmit(self) -> bool {
        matches!(self, State::Established | State::CloseWait | State::FinWait1 | State::Closing | State::LastAck)
    }

    /// Whether the user may append data.
    #[inline]
    pub const fn accepts_send(self) -> bool {
        matches!(self, State::SynSent | State::SynReceived | State::Established | State::CloseWait)
    }

    /// Whether data from the peer is accepted.
    #[inline]
    pub const fn accepts_data(self) -> bool {
        matches!(self, State::Established | State::FinWait1 | State::FinWait2)
    }

    /// Whether both SYNs have been exchanged and acknowledged.
    #[inline]
    pub const fn is_synchronised(self) -> bool {
        !matches!(self, State::Closed | State::Listen | State::SynSent | State::SynReceived)
    }

    /// The RFC's name.
    pub const fn name(self) -> &'static str {
        match self {
            State::Closed => "CLOSED",
            State::Listen => "LISTEN",
            State::SynSent => "SYN-SENT",
            State::SynReceived => "SYN-RECEIVED",
            State::Established => "ESTABLISHED",
            State::FinWait1 => "FIN-WAIT-1",
            State::FinWait2 => "FIN-WAIT-2",
            State::CloseWait => "CLOSE-WAIT",
            State::Closing => "CLOSING",
            State::LastAck => "LAST-ACK",
            State::TimeWait => "TIME-WAIT",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The transition table as a graph in the dot language.
pub fn graph() -> String {
    use core::fmt::Write;
    let mut text = String::from("digraph tcp {\n");
    for (from, cause, to) in TRANSITIONS {
        let _ = writeln!(text, "  \"{from}\" -> \"{to}\" [label=\"{cause:?}\"];");
    }
    text.push_str("}\n");
    text
}
