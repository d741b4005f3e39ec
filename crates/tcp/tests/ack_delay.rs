//! The delay of acknowledgements: quick ones at the start of a connection, dialogues, and the adaptation of the delay.
//!
//! Expected values are those of Linux (`tcp_event_data_sent`, `tcp_send_delayed_ack` and the expiry of its delayed-ACK
//! timer), seen on a loopback interface of Linux 6.18: a request and its answer take four segments once and two from then on; an answer
//! 60 ms late costs an acknowledgement by the timer, and quick acknowledgements are quick again.

mod support;

use std::net::IpAddr;
use std::time::Duration;

use observe::Counter;
use support::endpoint::Setup;
use support::ms;
use support::script::{Script, peer};
use tcp::Profile;

/// An endpoint with its defaults, over one of the two families and under one of the drivers.
fn setups() -> impl Iterator<Item = Setup> {
    [false, true].into_iter().flat_map(|six| [false, true].map(|staged| (six, staged))).map(|(six, staged)| {
        let mut setup = Setup { staged, ..Setup::default() };
        if six {
            setup.tuple.local_addr = "fd00::1".parse::<IpAddr>().unwrap();
            setup.tuple.remote_addr = "fd00::2".parse::<IpAddr>().unwrap();
        }
        setup
    })
}

/// Requests of the peer, each answered with as many bytes.
struct Dialogue {
    script: Script,
    /// Bytes of requests, and of answers, so far.
    bytes: u32,
}

const LEN: u32 = 100;

impl Dialogue {
    fn new(setup: Setup) -> Dialogue {
        Dialogue { script: Script::connected(setup, |syn| syn), bytes: 0 }
    }

    /// A request, which acknowledges the answer before it. Returns the segments sent before the next event.
    fn request(&mut self) -> usize {
        self.script.inject(peer("P.").seq(1 + self.bytes).ack(1 + self.bytes).len(LEN as usize));
        self.script.take().len()
    }

    /// The answer `after` the request. Returns the segments sent until then, and with it.
    fn answer(&mut self, after: Duration) -> (usize, usize) {
        self.script.pass(after);
        let before = self.script.take().len();
        self.script.read();
        self.script.send(LEN as usize);
        self.bytes += LEN;
        (before, self.script.take().len())
    }
}

#[test]
fn an_answer_within_the_delay_ends_quick_acknowledgements() {
    for setup in setups() {
        let mut dialogue = Dialogue::new(setup);
        assert_eq!(dialogue.request(), 1, "no answer has been seen yet");
        assert_eq!(dialogue.answer(ms(39)), (0, 1));
        for _ in 0..20 {
            assert_eq!(dialogue.request(), 0, "the answer will carry the acknowledgement");
            assert_eq!(dialogue.answer(ms(1)), (0, 1));
        }
        assert_eq!(dialogue.script.us.count(Counter::DelayedAckTimeouts), 0);
    }
}

#[test]
fn a_later_answer_does_not() {
    for setup in setups() {
        let quick = setup.config.quick_acks;
        let mut dialogue = Dialogue::new(setup);
        for number in 0..quick {
            assert_eq!(dialogue.request(), 1, "request {number}");
            assert_eq!(dialogue.answer(ms(60)), (0, 1));
        }
        assert_eq!(dialogue.request(), 0, "the quick ones are used up");
        assert_eq!(dialogue.answer(ms(60)), (1, 1));
    }
}

/// The data of the user's own that no request preceded is no answer.
#[test]
fn what_is_sent_first_begins_no_dialogue() {
    for setup in setups() {
        let mut t = Script::connected(setup, |syn| syn);
        t.send(50);
        t.take();
        t.inject(peer("P.").ack(51).len(100));
        assert_eq!(t.take().len(), 1);
    }
}

#[test]
fn an_acknowledgement_by_the_timer_ends_the_dialogue_and_quick_ones_are_quick_again() {
    for setup in setups() {
        let mut dialogue = Dialogue::new(setup);
        dialogue.request();
        dialogue.answer(ms(0));
        assert_eq!(dialogue.request(), 0);
        assert_eq!(dialogue.answer(ms(60)), (1, 1), "the timer, then the answer");
        assert_eq!(dialogue.request(), 1);
        assert_eq!(dialogue.answer(ms(60)), (0, 1));
        assert_eq!(dialogue.request(), 1);
        assert_eq!(dialogue.answer(ms(1)), (0, 1), "a dialogue again");
        assert_eq!(dialogue.request(), 0);
    }
}

/// When the single segment that arrives now is acknowledged; the next one comes an hour later.
fn delay(t: &mut Script, number: u32) -> Duration {
    t.inject(peer("P.").seq(1 + number * LEN).len(LEN as usize));
    t.expect(&[]);
    let delay = t.until_sent(ms(1000)).expect("an acknowledgement");
    t.take();
    t.pass(Duration::from_secs(3600));
    delay
}

/// The delays of single segments over a path with this round trip; the user sends nothing.
fn delays(mut setup: Setup, rtt: Duration) -> Vec<Duration> {
    setup.config.quick_acks = 0;
    let mut t = Script::connected_over(setup, rtt, |syn| syn);
    (0..6).map(|number| delay(&mut t, number)).collect()
}

#[test]
fn the_delay_doubles_up_to_the_round_trip_between_40_and_200_ms() {
    for setup in setups() {
        assert_eq!(delays(setup.clone(), ms(1)), [40; 6].map(ms));
        assert_eq!(delays(setup.clone(), ms(100)), [40, 80, 100, 100, 100, 100].map(ms));
        assert_eq!(delays(setup.clone(), ms(1000)), [40, 80, 160, 200, 200, 200].map(ms));
    }
}

/// FreeBSD's delay is constant, and the delay of the profile `rfc` is the longest from the beginning.
#[test]
fn other_profiles_do_not_adapt_the_delay() {
    for (profile, constant) in [(Profile::FreeBsd, 40), (Profile::Rfc, 200)] {
        for mut setup in setups() {
            setup.config = tcp::Config { window_rule: setup.config.window_rule, ..profile.config() };
            assert_eq!(delays(setup, ms(1000)), [constant; 6].map(ms), "{}", profile.name());
        }
    }
}

/// Short gaps lead the delay back, each by half of the way.
#[test]
fn short_gaps_between_segments_shorten_the_delay() {
    for mut setup in setups() {
        setup.config.quick_acks = 0;
        let mut t = Script::connected_over(setup, ms(1000), |syn| syn);
        assert_eq!([0, 1, 2].map(|number| delay(&mut t, number)), [40, 80, 160].map(ms));
        let mut seen = Vec::new();
        for number in 3..8 {
            t.inject(peer("P.").seq(1 + number * LEN).ack(1 + (number - 3) * 10).len(LEN as usize));
            t.expect(&[]);
            seen.push(t.run(tcp::Status).delayed_ack);
            t.pass(ms(1));
            t.send(10);
            assert_eq!(t.take().len(), 1);
        }
        assert_eq!(seen, [200, 120, 80, 60, 50].map(ms));
    }
}
