//! TCP Fast Open (RFC 7413), both sides against a scripted peer.

mod support;

use std::time::Duration;

use observe::{Counter, DropReason};
use pktbuf::{Chunk, PktBuf};
use support::endpoint::{Driver, Setup};
use support::script::{Peer, Script, peer};
use tcp::fast_open::{DestinationUpdate, Offer, OfferOutcome};
use tcp::{Close, Error, Isn, OpenParams, Outbox, PathMtu, Pcb, State, TakeError};
use tcp::{Start, TakeDestinationUpdate};
use wire::SeqNumber;
use wire::tcp::{Cookie, FastOpen};

fn plain() -> Setup {
    let mut setup = Setup::default();
    setup.config.timestamps = false;
    setup.config.window_scaling = false;
    setup.config.sack = false;
    setup
}

fn cookie(bytes: &[u8]) -> FastOpen {
    FastOpen { cookie: Cookie::new(bytes).expect("a length of cookies"), experimental: false }
}

/// The Fast Open option of the segment sent, and the segment as text.
fn option(t: &mut Script) -> (Option<FastOpen>, String) {
    let [segment] = &t.us.sent[..] else { panic!("one segment, not {}", t.us.sent.len()) };
    let header = usize::from(segment[12] >> 4) * 4;
    let found = wire::tcp::ExtraOptions::parse(&segment[20..header]).fast_open;
    (found, t.take().remove(0))
}

/// Opens early for a SYN with `data`; `given`: a new cookie for the peer.
fn accept(setup: Setup, syn: Peer, given: Option<FastOpen>) -> Script {
    let mut t = Script::new(setup);
    let segment = t.segment(&syn);
    let mut out = Outbox::new(&t.us.setup.config, &t.us.counters);
    let isn = Isn { iss: SeqNumber(t.us.setup.iss), ts_offset: 0, flow_hash: None };
    let mut child = None;
    let accepted =
        tcp::handshake::accept(&t.us.setup.listen_params(), segment, isn, given, (&mut child, &mut out), t.now);
    accepted.expect("a SYN");
    let pcb = Box::new(child.expect("its connection"));
    assert_eq!(out.table, tcp::TableChange::Established, "it may be accepted at once");
    let (wake, segments) = (out.deadline, out.segments.drain(..).collect());
    drop(out);
    t.us.sent = segments;
    t.us.wake = wake;
    t.us.memory = pcb.memory();
    t.us.driver = Some(Driver::Whole(pcb));
    t
}

fn early() -> Script {
    let mut t = accept(plain(), peer("S").seq(0).win(60_000).mss(1000).data(b"request"), None);
    t.expect(&["S. 0:0(0) ack 8 win 65528 <mss 1460>"]);
    t
}

/// Opens actively with `len` bytes of data.
fn open(setup: Setup, offer: Offer, len: usize) -> Script {
    open_with(setup, offer, len, false)
}

/// The same; `more`: the user waits to send more.
fn open_with(setup: Setup, offer: Offer, len: usize, more: bool) -> Script {
    let mut t = Script::new(setup);
    let params = OpenParams {
        tuple: t.us.setup.tuple,
        iss: SeqNumber(t.us.setup.iss),
        ts_offset: 0,
        flow_hash: None,
        mss: t.us.setup.mss,
        options: Default::default(),
    };
    let mut out = Outbox::new(&t.us.setup.config, &t.us.counters);
    let data = PktBuf::from_slice(&support::data(0, len)).expect("a buffer");
    let data = tcp::Chunks::from_iter([Chunk::Pooled(data)]);
    let pcb = Pcb::open_fast(&params, Start { offer, data, more }, &mut out, t.now);
    let (wake, segments) = (out.deadline, out.segments.drain(..).collect());
    drop(out);
    t.us.sent = segments;
    t.us.wake = wake;
    t.us.memory = pcb.memory();
    t.us.driver = Some(Driver::Whole(Box::new(pcb)));
    t
}

fn offered() -> Offer {
    Offer { option: Some(cookie(b"12345678")), max_data: 1000 }
}

/// RFC 7413 section 4.2.2: the data is acknowledged with the SYN, can be read, and may be answered before the handshake
/// is complete.
#[test]
fn data_of_a_syn_is_read_and_answered_at_once() {
    let mut t = early();
    assert_eq!(t.state(), State::SynReceived);
    assert_eq!(t.read(), 7);
    assert_eq!(t.us.received, b"request");
    assert_eq!(t.send(1500), 1500);
    t.expect(&[". 1:1001(1000) ack 8 win 65528", "P. 1001:1501(500) ack 8 win 65528"]);
    t.inject(peer(".").seq(8).ack(1501));
    assert_eq!(t.state(), State::Established);
    assert!(t.us.accepted, "the stack is notified of the end of the handshake, too");
    assert_eq!(t.us.count(Counter::ConnectionsEstablished), 1);
    assert_eq!(t.us.status().unacknowledged, 0);
    t.expect(&[]);
    t.inject(peer("P.").seq(8).ack(1501).data(b" more"));
    assert_eq!(t.read(), 5);
}

#[test]
fn an_acknowledgement_of_the_syn_alone_completes_the_handshake() {
    let mut t = early();
    t.send(500);
    t.expect(&["P. 1:501(500) ack 8 win 65528"]);
    t.inject(peer(".").seq(8).ack(1));
    assert_eq!((t.state(), t.us.status().unacknowledged), (State::Established, 500));
    assert!(t.until_sent(Duration::from_secs(4)).is_some(), "the data has a timer");
    t.expect(&["P. 1:501(500) ack 8 win 65528"]);
    t.inject(peer(".").seq(8).ack(501));
    t.pass(Duration::from_secs(100));
    t.expect(&[]);
}

/// Only the SYN-ACK is retransmitted before it is acknowledged, by the timer and for a repeated SYN without data.
#[test]
fn the_syn_ack_of_an_early_connection_is_sent_again() {
    let mut t = early();
    t.send(500);
    t.take();
    assert_eq!(t.until_sent(Duration::from_secs(2)), Some(Duration::from_secs(1)));
    t.expect(&["S. 0:0(0) ack 8 win 65528 <mss 1460>"]);
    t.inject(peer("S").seq(0).win(60_000).mss(1000));
    t.expect(&["S. 0:0(0) ack 8 win 65528 <mss 1460>"]);
    t.inject(peer(".").seq(8).ack(1));
    assert!(t.until_sent(Duration::from_secs(10)).is_some());
    t.expect(&["P. 1:501(500) ack 8 win 65528"]);
    t.read();
    assert_eq!(t.us.received, b"request", "the data was taken once");
}

#[test]
fn an_acknowledgement_of_what_was_not_sent_resets_and_changes_nothing() {
    let mut t = early();
    for ack in [0, 2, 0x8000_0000] {
        t.inject(peer(".").seq(8).ack(ack));
        assert_eq!(t.take(), [format!("R {}:{}(0)", ack as i32, ack as i32)]);
        assert_eq!(t.state(), State::SynReceived);
    }
}

/// The stack is notified of an early connection that fails, and whether by a reset (RFC 7413 section 5.1).
#[test]
fn a_reset_ends_an_early_connection() {
    let mut t = early();
    t.inject(peer("R").seq(8));
    assert_eq!((t.state(), t.us.unfinished, t.us.removed), (State::Closed, Some(true), false));
    assert_eq!(t.run(TakeError), Some(Error::Reset), "its user has it already");

    let mut t = early();
    t.read();
    t.run(Close);
    t.expect(&["F. 1:1(0) ack 8 win 65528"]);
    t.inject(peer("R").seq(8));
    assert_eq!((t.us.unfinished, t.us.removed), (Some(true), true), "nobody holds it");
}

#[test]
fn an_early_connection_that_is_never_acknowledged_times_out() {
    let mut t = early();
    t.pass(Duration::from_secs(200));
    assert_eq!(t.take().len(), usize::from(t.us.setup.config.syn_ack_retries));
    assert_eq!((t.state(), t.us.unfinished, t.us.removed), (State::Closed, Some(false), false));
    assert_eq!(t.run(TakeError), Some(Error::TimedOut));
}

/// A server that answers and closes without waiting: its FIN is sent before the handshake is complete.
#[test]
fn an_early_connection_can_be_closed() {
    let mut t = early();
    t.read();
    t.send(100);
    t.run(Close);
    t.expect(&["P. 1:101(100) ack 8 win 65528", "F. 101:101(0) ack 8 win 65528"]);
    assert_eq!(t.state(), State::SynReceived);
    t.inject(peer(".").seq(8).ack(102));
    assert_eq!(t.state(), State::FinWait2);
    t.inject(peer("F.").seq(8).ack(102));
    assert_eq!(t.state(), State::TimeWait);
    assert!(!t.us.removed);
}

#[test]
fn a_new_cookie_is_on_the_first_syn_ack_only() {
    let given = cookie(b"newcook!");
    let mut t = accept(plain(), peer("S").seq(0).mss(1000).data(b"x"), Some(given));
    let syn_ack = "S. 0:0(0) ack 2 win 65534 <mss 1460>";
    assert_eq!(option(&mut t), (Some(given), syn_ack.to_owned()));
    t.until_sent(Duration::from_secs(2));
    assert_eq!(option(&mut t), (None, syn_ack.to_owned()));
}

/// A listener that grants no Fast Open acknowledges the SYN and not its data.
#[test]
fn data_of_a_plain_syn_is_left_to_be_sent_again() {
    let mut t = Script::new(plain());
    t.us.listening = true;
    t.inject(peer("S").seq(0).mss(1000).data(b"request"));
    t.expect(&["S. 0:0(0) ack 1 win 65535 <mss 1460>"]);
    assert_eq!(t.us.counters.dropped(DropReason::TcpFastOpenRefused), 1);
    t.inject(peer("P.").seq(1).ack(1).data(b"request"));
    assert_eq!((t.state(), t.read()), (State::Established, 7));
}

#[test]
fn a_syn_carries_a_cookie_and_as_much_data_as_was_offered() {
    let mut t = open(plain(), offered(), 1500);
    assert_eq!(option(&mut t), (offered().option, "S 0:1000(1000) <mss 1460>".to_owned()));
    t.inject(peer("S.").seq(0).ack(1001).mss(1000));
    t.expect(&["P. 1001:1501(500) ack 1 win 65535"]);
    assert!(t.us.learnt);
    let update = DestinationUpdate { cookie: None, mss: Some(1000), outcome: OfferOutcome::Taken };
    assert_eq!((t.run(TakeDestinationUpdate), t.run(TakeDestinationUpdate)), (Some(update), None));
    t.inject(peer(".").seq(1).ack(1501));
    assert_eq!((t.us.status().send_queue, t.us.status().traffic.bytes_acked), (0, 1500));
    t.pass(Duration::from_secs(100));
    t.expect(&[]);
}

/// RFC 7413 section 4.2.2: data that the SYN-ACK does not acknowledge is sent again with the acknowledgement.
#[test]
fn data_that_was_not_taken_leaves_again_at_once() {
    for taken in [0, 300] {
        let mut t = open(plain(), offered(), 1000);
        t.take();
        let mut answer = peer("S.").seq(0).ack(1 + taken).mss(1000);
        answer.rare.fast_open = Some(cookie(b"87654321"));
        t.inject(answer);
        assert_eq!(t.take(), [format!("P. {}:1001({}) ack 1 win 65535", 1 + taken, 1000 - taken)]);
        let outcome = if taken > 0 { OfferOutcome::Taken } else { OfferOutcome::Answered };
        let cookie = Some(cookie(b"87654321"));
        assert_eq!(t.run(TakeDestinationUpdate), Some(DestinationUpdate { cookie, mss: Some(1000), outcome }));
        t.inject(peer(".").seq(1).ack(1001));
        assert_eq!(t.us.status().send_queue, 0);
    }
}

#[test]
fn without_a_cookie_one_is_asked_for_and_data_follows_the_handshake() {
    let request = Offer { option: Some(cookie(b"")), max_data: 0 };
    let mut t = open(plain(), request, 100);
    assert_eq!(option(&mut t), (request.option, "S 0:0(0) <mss 1460>".to_owned()));
    t.inject(peer("S.").seq(0).ack(1).mss(1000));
    t.expect(&["P. 1:101(100) ack 1 win 65535"]);
    let outcome = OfferOutcome::Ignored { experimental: false };
    assert_eq!(t.run(TakeDestinationUpdate), Some(DestinationUpdate { cookie: None, mss: Some(1000), outcome }));
    // No offer: nothing to learn.
    let mut t = open(plain(), Offer::default(), 100);
    assert_eq!(option(&mut t), (None, "S 0:0(0) <mss 1460>".to_owned()));
    t.inject(peer("S.").seq(0).ack(1).mss(1000));
    assert!(!t.us.learnt);
    t.expect(&["P. 1:101(100) ack 1 win 65535"]);
}

/// The acknowledgement of the SYN-ACK is sent with the data that the user was about to send, or after the delay.
#[test]
fn the_acknowledgement_waits_for_a_user_who_waits() {
    let mut t = open_with(plain(), offered(), 1000, true);
    t.take();
    t.inject(peer("S.").seq(0).ack(1001).mss(1000));
    t.expect(&[]);
    t.send(200);
    t.expect(&["P. 1001:1201(200) ack 1 win 65535"]);
    assert!(t.us.status().data_on_syn);

    let mut t = open_with(plain(), offered(), 1000, true);
    t.take();
    t.inject(peer("S.").seq(0).ack(1001).mss(1000));
    t.pass(t.us.setup.config.delayed_ack - Duration::from_micros(1));
    t.expect(&[]);
    t.pass(Duration::from_micros(1));
    t.expect(&[". 1001:1001(0) ack 1 win 65535"]);
}

/// Data that was acknowledged with data, or by a segment that had to be sent at once, is not acknowledged again after
/// the delay.
#[test]
fn an_acknowledgement_that_has_been_sent_does_not_wait_for_the_user() {
    let mut t = open_with(plain(), offered(), 1000, true);
    t.take();
    t.inject(peer("S.").seq(0).ack(1).mss(1000));
    t.expect(&["P. 1:1001(1000) ack 1 win 65535"]);
    t.inject(peer(".").seq(1).ack(1001));
    t.pass(Duration::from_secs(1));
    assert_eq!((t.take().len(), t.us.count(Counter::DelayedAckTimeouts)), (0, 0));

    let mut setup = plain();
    setup.config.ecn = tcp::config::Ecn::Accurate;
    let mut t = open_with(setup, offered(), 1000, true);
    t.take();
    let mut answer = peer("S.").seq(0).ack(1001).mss(1000);
    answer.flags |= wire::tcp::TcpFlags::CWR;
    t.inject(answer);
    assert_eq!(t.take().len(), 1);
    t.pass(Duration::from_secs(1));
    assert_eq!((t.take().len(), t.us.count(Counter::DelayedAckTimeouts)), (0, 0));
}

/// Data that a SYN had was small because the SYN had no more: Nagle's rule (RFC 9293 section 3.7.4) does not hold back what
/// follows it, as it does after data that was sent with the handshake complete.
#[test]
fn data_of_a_syn_that_is_sent_again_holds_nothing_back() {
    let mut t = open(plain(), offered(), 100);
    t.take();
    t.inject(peer("S.").seq(0).ack(1).mss(1000));
    assert_eq!(t.ranges(), ["1:101"]);
    t.send(50);
    assert_eq!(t.ranges(), ["101:151"]);

    let mut t = Script::new(plain());
    t.us.open(t.now);
    t.send(100);
    t.take();
    t.inject(peer("S.").seq(0).ack(1).mss(1000));
    assert_eq!(t.ranges(), ["1:101"]);
    t.send(50);
    assert_eq!(t.ranges(), Vec::<String>::new());
    t.inject(peer(".").seq(1).ack(101));
    assert_eq!(t.ranges(), ["101:151"]);
}

#[test]
fn a_cookie_that_nobody_asked_for_is_none() {
    let mut t = open(plain(), Offer { option: None, max_data: 1000 }, 1000);
    t.take();
    let mut answer = peer("S.").seq(0).ack(1001).mss(1000);
    answer.rare.fast_open = Some(cookie(b"87654321"));
    t.inject(answer);
    assert_eq!(
        t.run(TakeDestinationUpdate),
        Some(DestinationUpdate { cookie: None, mss: Some(1000), outcome: OfferOutcome::Taken })
    );
}

/// When a router cannot forward the SYN with data, it is sent again at once.
#[test]
fn a_syn_that_is_too_large_leaves_again_without_data() {
    let mut t = open(plain(), offered(), 1000);
    t.take();
    let seq = Some(SeqNumber(t.us.setup.iss));
    assert!(t.run(PathMtu { mss: 900, seq }));
    t.expect(&["S 0:0(0) <mss 900>"]);
    t.inject(peer("S.").seq(0).ack(1).mss(1000));
    t.expect(&[". 1:901(900) ack 1 win 65535", "P. 901:1001(100) ack 1 win 65535"]);
    assert!(!t.us.status().data_on_syn);
}

/// A SYN with an offer that is not answered is sent again without the offer, and the destination is suspected; a late
/// answer to the first still counts.
#[test]
fn silence_falls_back_to_a_plain_syn() {
    for (ack, rest) in [(1, vec!["P. 1:501(500) ack 1 win 65535"]), (501, vec![". 501:501(0) ack 1 win 65535"])] {
        let mut t = open(plain(), offered(), 500);
        t.take();
        assert_eq!(t.until_sent(Duration::from_secs(2)), Some(Duration::from_secs(1)));
        assert_eq!(option(&mut t), (None, "S 0:0(0) <mss 1460>".to_owned()));
        assert_eq!(
            t.run(TakeDestinationUpdate),
            Some(DestinationUpdate { cookie: None, mss: None, outcome: OfferOutcome::Silent })
        );
        t.us.learnt = false;
        t.until_sent(Duration::from_secs(4)).expect("a second time-out");
        t.take();
        assert!(!t.us.learnt, "told once");
        t.inject(peer("S.").seq(0).ack(ack).mss(1000));
        assert_eq!((t.take(), t.state()), (rest.iter().map(|line| line.to_string()).collect(), State::Established));
    }
}

/// Both SYNs cross: ours carries the data, and the peer acknowledges it or not.
#[test]
fn a_simultaneous_open_with_data() {
    for taken in [0, 500] {
        let mut t = open(plain(), offered(), 500);
        t.take();
        t.inject(peer("S").seq(0).mss(1000));
        t.expect(&["S. 0:0(0) ack 1 win 65535 <mss 1460>"]);
        t.inject(peer("S.").seq(0).ack(1 + taken).mss(1000));
        assert_eq!(t.state(), State::Established);
        let data = if taken == 0 { vec!["P. 1:501(500) ack 1 win 65535".to_owned()] } else { vec![] };
        assert_eq!(t.take(), data);
        t.inject(peer(".").seq(1).ack(501));
        assert_eq!(t.us.status().send_queue, 0);
    }
}

#[test]
fn a_reset_refuses_an_open_with_data() {
    let mut t = open(plain(), offered(), 500);
    t.take();
    t.inject(peer("R.").seq(0).ack(501));
    assert_eq!((t.state(), t.run(TakeError)), (State::Closed, Some(Error::Refused)));
}
