//! Packet buffers held by connections. One test, because the count of live buffers is the process's.

mod support;

use support::endpoint::Setup;
use support::ms;
use support::script::{Script, peer};
use tcp::{Close, SetOption, SocketOption, TransmitReady};

fn plain() -> Script {
    Script::connected(Setup::default(), |syn| syn)
}

fn delayed() -> Script {
    let mut setup = Setup::default();
    setup.config.quick_acks = 0;
    Script::connected(setup, |syn| syn)
}

fn many_small_writes_share_a_buffer() {
    let mut t = plain();
    let before = pktbuf::live();
    t.us.credit = 0;
    for _ in 0..100 {
        t.send(10);
    }
    assert!(pktbuf::live() - before <= 2);
    t.us.credit = 10;
    t.us.run(TransmitReady, t.now);
    t.expect(&["P. 1:1001(1000) ack 1 win 65535"]);
}

fn small_segments_share_a_buffer() {
    let mut t = delayed();
    let before = pktbuf::live();
    for i in 0..200 {
        t.inject(peer(".").seq(1 + i).len(1));
        t.us.sent.clear();
    }
    assert!(pktbuf::live() - before <= 2, "{} blocks for 200 bytes", pktbuf::live() - before);
    assert_eq!(t.read(), 200);
    assert_eq!(t.us.received, support::data(1, 200));
}

fn nothing_is_held_by_an_idle_connection() {
    let before = pktbuf::live();
    let mut t = delayed();
    for i in 0..50 {
        t.inject(peer(".").seq(1 + 1000 * i).len(1000));
    }
    t.send(20_000);
    t.read();
    t.us.sent.clear();
    t.inject(peer(".").seq(50_001).ack(10_001).win(60_000));
    t.us.sent.clear();
    t.inject(peer(".").seq(50_001).ack(20_001).win(60_000));
    t.us.sent.clear();
    t.pass(ms(10_000));
    t.us.sent.clear();
    assert_eq!(pktbuf::live(), before);
    assert_eq!(t.us.wake, None, "an idle connection asks for no wake");
}

fn linger_zero_drops_what_is_queued() {
    let before = pktbuf::live();
    let mut t = plain();
    t.run(SetOption(SocketOption::Linger(Some(ms(0))))).unwrap();
    t.us.credit = 0;
    t.send(5000);
    t.run(Close);
    assert!(t.us.removed);
    t.us.sent.clear();
    assert_eq!(pktbuf::live(), before);
}

fn out_of_order_data_goes_with_the_connection() {
    let before = pktbuf::live();
    let mut t = plain();
    for i in 1..100 {
        t.inject(peer(".").seq(2000 * i).len(1000));
    }
    t.us.sent.clear();
    assert!(pktbuf::live() > before);
    t.inject(peer("R").seq(1));
    t.us.sent.clear();
    assert_eq!(pktbuf::live(), before);
}

#[test]
fn buffers_are_shared_and_given_back() {
    many_small_writes_share_a_buffer();
    small_segments_share_a_buffer();
    nothing_is_held_by_an_idle_connection();
    linger_zero_drops_what_is_queued();
    out_of_order_data_goes_with_the_connection();
}
