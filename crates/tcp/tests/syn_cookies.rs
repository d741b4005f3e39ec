//! SYN cookies (RFC 4987 section 3.6): the results of the negotiation survive without stored state.

mod support;

use std::time::Duration;

use observe::Counter;
use support::endpoint::Setup;
use support::script::{IRS, Peer, Script, line, peer};
use tcp::handshake::HandshakeSecrets;
use tcp::{Isn, Outbox, State, syn_cookie};
use wire::SeqNumber;

const SECRETS: HandshakeSecrets = HandshakeSecrets { syn_cookie: (5, 6), fast_open: [0; 16] };

fn isn() -> Isn {
    Isn { iss: SeqNumber(0), ts_offset: 0x1234_5678, flow_hash: None }
}

/// A listener that answers `syn` with a cookie: its SYN-ACK as text, its sequence number and its timestamp.
fn answer(t: &mut Script, syn: &Peer) -> (String, u32, Option<u32>) {
    let segment = t.segment(syn);
    let mut out = Outbox::new(&t.us.setup.config, &t.us.counters);
    let params = t.us.setup.listen_params();
    syn_cookie::answer(&params, &segment, isn(), &SECRETS, &mut out, t.now).expect("a SYN is answered");
    assert!(out.deadline.is_none(), "nothing is remembered");
    let [sent] = &out.segments[..] else { panic!("one SYN-ACK") };
    let header = wire::tcp::parse(sent).expect("a good segment");
    let text = line(sent, header.seq.0, IRS, &t.us.setup.tuple);
    (text, header.seq.0, header.options.timestamps.map(|ts| ts.value))
}

/// The peer acknowledges the cookie with `ack`; returns whether that makes a connection.
fn acknowledge(t: &mut Script, cookie: u32, ack: Peer) -> bool {
    t.us.setup.iss = cookie;
    let segment = t.segment(&ack);
    let params = t.us.setup.listen_params();
    let half_open = syn_cookie::accept(&params, &segment, isn(), &SECRETS, &t.us.setup.config, t.now);
    let Some(half_open) = half_open else { return false };
    t.us.half_open = Some(half_open);
    t.inject(ack);
    t.state() == State::Established
}

#[test]
fn window_scale_sack_and_mss_come_back_in_the_timestamp() {
    for (shift, sack) in [(Some(0), true), (Some(7), false), (Some(14), true), (None, true), (None, false)] {
        let mut t = Script::new(Setup::default());
        let mut syn = peer("S").seq(0).mss(1400).ts(500, 0);
        syn.options.window_scale = shift;
        syn.options.sack_permitted = sack;
        let (text, cookie, stamp) = answer(&mut t, &syn);
        let stamp = stamp.expect("timestamps are granted");
        assert_eq!(text.contains("sackOK"), sack, "{text}");
        assert_eq!(text.contains("wscale 7"), shift.is_some(), "{text}");
        let clock = (t.now.as_millis() as u32).wrapping_add(isn().ts_offset);
        assert!(clock.wrapping_sub(stamp) < 64, "the clock is near, and never ahead");
        t.now += Duration::from_millis(30);
        assert!(acknowledge(&mut t, cookie, peer(".").win(100).ts(530, stamp)));
        let status = t.us.status();
        assert_eq!((status.sack, status.timestamps, status.mss), (sack, true, 1388));
        assert_eq!(status.send_shift, shift.unwrap_or(0));
        assert_eq!(status.send_window, 100 << shift.unwrap_or(0));
        assert!(t.us.accepted);
    }
}

#[test]
fn without_timestamps_the_mss_alone_comes_back() {
    let mut t = Script::new(Setup::default());
    let (text, cookie, _) = answer(&mut t, &peer("S").seq(0).mss(1460).sack_permitted().scale(5));
    assert_eq!(text, "S. 0:0(0) ack 1 win 65535 <mss 1460>");
    // The acknowledgement itself was lost: the first data completes the handshake and is not lost.
    assert!(acknowledge(&mut t, cookie, peer("P.").win(5000).len(10)));
    assert_eq!(t.read(), 10);
    let status = t.us.status();
    assert_eq!((status.sack, status.send_shift, status.mss, status.send_window), (false, 0, 1460, 5000));
    assert_eq!(status.cwnd, 14_600, "a cookie is no lost SYN");
}

#[test]
fn a_forged_or_old_cookie_makes_no_connection() {
    let mut t = Script::new(Setup::default());
    let (_, cookie, _) = answer(&mut t, &peer("S").seq(0).mss(1460));
    for guess in 0..5000u32 {
        let forged = cookie.wrapping_add(1 + guess.wrapping_mul(0x0003_1415));
        assert!(forged == cookie || !acknowledge(&mut t, forged, peer(".")), "cookie {forged:#x}");
    }
    assert!(!acknowledge(&mut t, cookie, peer(".").seq(2)), "another sequence number of the peer");
    assert!(!acknowledge(&mut t, cookie, peer("R.")) && !acknowledge(&mut t, cookie, peer("S.")));
    let fresh = t.now;
    t.now = fresh + syn_cookie::LIFE;
    assert!(!acknowledge(&mut t, cookie, peer(".")));
    t.now = fresh + syn_cookie::LIFE / 2;
    assert!(acknowledge(&mut t, cookie, peer(".")));
    assert_eq!(t.us.count(Counter::SynCookiesOut), 1);
}

/// The time at which a cookie was sent is not kept, and its timestamp has other things in its low bits: no round trip is
/// sampled from either.
#[test]
fn a_cookie_gives_no_sample_of_the_round_trip() {
    let mut t = Script::new(Setup::default());
    let (_, cookie, stamp) = answer(&mut t, &peer("S").seq(0).mss(1400).ts(500, 0));
    t.now += Duration::from_millis(30);
    assert!(acknowledge(&mut t, cookie, peer(".").win(100).ts(530, stamp.expect("timestamps are granted"))));
    let status = t.us.status();
    assert_eq!((status.srtt, t.us.count(Counter::RttSamples)), (None, 0));
}
