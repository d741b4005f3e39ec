//! OPEN (RFC 9293 section 3.10.1): make a PCB and send its SYN; and the negotiation of options by the SYNs.

use observe::{Counter, Time};
use wire::tcp::{Header, Options};
use wire::{FourTuple, SeqNumber};

use super::TcpEvent;
use super::fast_open::Start;
use crate::access::PcbAccess;
use crate::config::{Config, ConnectionOptions, MtuProbing, OpenParams};
use crate::congestion::Controller;
use crate::ecn;
use crate::isn::Isn;
use crate::mss;
use crate::outbox::Outbox;
use crate::output;
use crate::pcb::{
    HeaderIn, HeaderOut, Pcb, Reassembly, ReceiveWindow, RecvSnapshot, RetransmitQueue, SendWindow, TimerPurpose,
    first_window,
};
use crate::state::{Cause, State};
use crate::user_timeout;

/// The contents of a SYN, reduced to the features that are in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Negotiation {
    pub(crate) peer_mss: u16,
    /// The peer's window shift, if both scale.
    pub(crate) shift: Option<u8>,
    pub(crate) timestamps: Option<u32>,
    pub(crate) sack: bool,
}

impl Negotiation {
    /// Reads a SYN received over IPv6 or IPv4, under the features that `config` allows.
    pub(crate) fn read(header: &Header, ipv6: bool, config: &Config) -> Self {
        let Options { mss, window_scale, sack_permitted, timestamps, .. } = header.options;
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.1
        //# If an MSS Option is not received at connection setup, TCP implementations MUST assume a default send MSS of
        //# 536 (576 - 40) for IPv4 or 1220 (1280 - 60) for IPv6 (MUST-15).
        let default = if ipv6 { mss::DEFAULT_V6 } else { mss::DEFAULT_V4 };
        Negotiation {
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.1
            //# TCP endpoints MUST implement both sending and receiving the MSS Option (MUST-14).
            peer_mss: mss.unwrap_or(default).max(config.min_mss),
            // RFC 7323 section 2.3: larger shifts are used as 14.
            shift: window_scale.filter(|_| config.window_scaling).map(|shift| shift.min(14)),
            //= https://www.rfc-editor.org/rfc/rfc7323#section-3.2
            //# When the ACK bit is not set, the receiver MUST ignore the value of the TSecr field.
            timestamps: timestamps.filter(|_| config.timestamps).map(|timestamps| timestamps.value),
            sack: sack_permitted && config.sack,
        }
    }
}

/// The active OPEN of a PCB that is not open: it sends its SYN, with data if there is any (Fast Open).
pub struct Open(pub Option<Box<Start>>);

impl TcpEvent for Open {
    type Reply = ();

    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) {
        out.count(Counter::ConnectionsOpened, 1);
        pcb.whole(out, |mut parts, out| {
            parts.leave(State::Closed, Cause::ActiveOpen, out, now);
            parts.header_out.marks.set_echo(ecn::syn_flags(out.config, 0));
            match self.0 {
                None => parts.send_syn(out, now),
                Some(start) => parts.open_fast(*start, out, now),
            }
        });
    }
}

impl Pcb {
    /// A PCB in CLOSED, for [`Open`].
    #[inline(always)]
    pub fn unopened(params: &OpenParams, config: &Config, now: Time) -> Pcb {
        let isn = Isn { iss: params.iss, ts_offset: params.ts_offset, flow_hash: params.flow_hash };
        Pcb::closed(params.tuple, isn, params.mss, &params.options, config, now)
    }

    /// Open actively: the PCB in SYN-SENT, its SYN in `out`.
    pub fn open_active(params: &OpenParams, out: &mut Outbox<'_>, now: Time) -> Pcb {
        let mut pcb = Pcb::unopened(params, out.config, now);
        Open(None).run(&mut pcb.parts(), out, now);
        pcb
    }

    /// Open actively with data: the PCB in SYN-SENT, its SYN in `out` with as much of the data as the offer allows.
    pub fn open_fast(params: &OpenParams, start: Start, out: &mut Outbox<'_>, now: Time) -> Pcb {
        let mut pcb = Pcb::unopened(params, out.config, now);
        Open(Some(Box::new(start))).run(&mut pcb.parts(), out, now);
        pcb
    }

    /// A PCB in CLOSED with `iss` as SND.UNA and SND.NXT.
    #[inline(always)]
    pub(crate) fn closed(
        tuple: FourTuple,
        isn: Isn,
        route_mss: u16,
        options: &ConnectionOptions,
        config: &Config,
        now: Time,
    ) -> Pcb {
        // The floor limits the values that users and peers set; no segment can be larger than the route carries.
        let largest = options.max_segment.unwrap_or(u16::MAX).max(config.min_mss);
        let own_mss = largest.min(route_mss).max(1);
        let announced = mss::announced(own_mss, options);
        let first = first_window(options, config, announced);
        // In one expression, so that each part is made where it stays.
        Pcb {
            retransmit_queue: RetransmitQueue::new(largest),
            receive_window: ReceiveWindow::new(State::Closed, first, options, config, now),
            header_in: HeaderIn::new(State::Closed, tuple.remote_addr.is_ipv6(), options, config, now),
            reassembly: Reassembly::new(),
            send_window: SendWindow::new(&isn, own_mss, options, config, now),
            header_out: HeaderOut::new(&tuple, (announced, first), &isn, options, now),
        }
    }
}

impl crate::access::PcbMut<'_> {
    /// Send our SYN (or SYN-ACK) for the first time and start its timer.
    pub(crate) fn send_syn(&mut self, out: &mut Outbox<'_>, now: Time) {
        let sw = &mut *self.send_window;
        sw.nxt = sw.una + 1;
        sw.timed = sw.nxt;
        sw.rtt.start();
        self.retransmit_queue.log.sent(sw.una, sw.una, now.as_micros() as u32, 0);
        sw.set_timer(TimerPurpose::Retransmit, sw.rtt.deadline(now));
        sw.arm(out);
        output::syn(sw, &user_timeout::of_syn(self.header_in), self.header_out, out, now);
        self.header_in.arm(out);
    }

    /// Adopts the sequence number of the peer's SYN and the options that both sides offer.
    //= https://www.rfc-editor.org/rfc/rfc7323#section-2.2
    //# A Window Scale option in a segment without a SYN bit MUST be ignored.
    pub(crate) fn synchronise(&mut self, header: &Header, out: &Outbox<'_>, now: Time) {
        let agreed = Negotiation::read(header, self.header_in.is_ipv6(), out.config);
        self.agree(header.seq, header.window, &agreed, out.config, now);
    }

    /// The peer's SYN had sequence number `irs` and `window`; `agreed` is the result of the negotiation.
    pub(crate) fn agree(&mut self, irs: SeqNumber, window: u16, agreed: &Negotiation, config: &Config, now: Time) {
        let rw = &mut *self.receive_window;
        //= https://www.rfc-editor.org/rfc/rfc7323#section-2.3
        //# Upon receiving a <SYN> segment with a Window Scale option containing shift.cnt = S, a TCP MUST set
        //# Snd.Wind.Shift to S and MUST set Rcv.Wind.Shift to R; otherwise, it MUST set both Snd.Wind.Shift and
        //# Rcv.Wind.Shift to zero.
        rw.set_shift(if agreed.shift.is_some() { config.window_shift() } else { 0 });
        rw.synchronise(irs);
        rw.set_timestamps(agreed.timestamps.is_some());
        rw.ts_recent = agreed.timestamps.unwrap_or(0);
        rw.confirm_timestamp(now);
        rw.sack = agreed.sack;
        let snapshot = RecvSnapshot { nxt: rw.nxt, edge: rw.edge, ts_recent: rw.ts_recent, sack: None, quick: false };
        self.header_out.set_shift(rw.shift);
        self.header_out.set_features(agreed.shift.is_some(), rw.timestamps());
        self.header_out.synchronise(&snapshot);
        let sw = &mut *self.send_window;
        sw.shift = agreed.shift.unwrap_or(0);
        sw.timestamps = agreed.timestamps.is_some();
        sw.sack = agreed.sack;
        self.retransmit_queue.largest = self.retransmit_queue.largest.min(agreed.peer_mss);
        let options = sw.option_bytes();
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.1
        //# The maximum size of a segment that a TCP endpoint really sends, the "effective send MSS", MUST be the
        //# smaller (MUST-16) of the send MSS (that reflects the available reassembly buffer size at the remote host,
        //# the EMTU_R [19]) and the largest transmission size permitted by the IP layer (EMTU_S [19]):
        sw.mss = agreed.peer_mss.min(sw.mss).saturating_sub(options).max(1);
        if config.mtu_probing == MtuProbing::Always {
            let size = sw.search_mtu(config, now);
            if sw.state == State::SynSent || !config.trust_route_mtu {
                sw.change_mss(size.saturating_sub(options).max(1));
            }
        }
        let initial = sw.initial_window(config);
        sw.congestion = Controller::new(sw.congestion.kind(), u32::from(sw.mss), initial);
        // The window of a SYN is never scaled (RFC 7323 section 2.2).
        //= https://www.rfc-editor.org/rfc/rfc7323#section-2.2
        //# The window field in a segment where the SYN bit is set (i.e., a <SYN> or <SYN,ACK>) MUST NOT be scaled.
        sw.wnd = u32::from(window);
        sw.max_wnd = sw.wnd;
        sw.wl1 = irs;
        sw.wl2 = sw.una;
    }
}
