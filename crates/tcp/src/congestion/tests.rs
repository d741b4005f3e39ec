//! Changes of a connection's congestion window, under both algorithms.

use super::*;
use proptest::prelude::*;

const MSS: u32 = 1000;

fn start(kind: Kind) -> Controller {
    Controller::new(kind, MSS, 10 * MSS)
}

/// An acknowledgement of `bytes` with the window in use.
fn ack(c: &mut Controller, bytes: u32) {
    c.on_ack(bytes, c.cwnd().max(bytes), None, Time::ZERO, true);
}

#[test]
fn is_small() {
    assert!(size_of::<Controller>() <= 24, "{} bytes", size_of::<Controller>());
}

//= https://www.rfc-editor.org/rfc/rfc9438#section-4.10
//= type=test
//# When _cwnd_ is no more than _ssthresh_, CUBIC MUST employ a slow start algorithm.
#[test]
fn slow_start_doubles_the_window_per_round_trip() {
    for &kind in Kind::ALL {
        let mut c = start(kind);
        assert!(c.in_slow_start());
        for expected in [20, 40, 80] {
            for _ in 0..c.cwnd() / (2 * MSS) {
                ack(&mut c, 2 * MSS);
            }
            assert_eq!(c.cwnd(), expected * MSS, "{kind}");
        }
    }
}

#[test]
fn slow_start_ends_at_the_threshold_and_the_rest_counts_for_avoidance() {
    let mut c = Controller::new(Kind::NewReno, MSS, 20 * MSS);
    c.on_congestion(20 * MSS, Time::ZERO);
    c.on_recovery_exit(u32::MAX, Time::ZERO);
    c.on_idle_restart(8 * MSS);
    ack(&mut c, 5 * MSS);
    assert_eq!((c.cwnd(), c.in_slow_start()), (10 * MSS, false));
    ack(&mut c, 7 * MSS);
    assert_eq!(c.cwnd(), 11 * MSS, "3 of the 5 segments were left over");
}

/// The largest flight is remembered until all of it is acknowledged.
#[test]
fn slow_start_makes_room_for_twice_what_was_in_flight() {
    let mut c = start(Kind::Cubic);
    let mut ack = |acked, flight| {
        c.on_ack(acked * MSS, flight * MSS, None, Time::ZERO, false);
        c.cwnd() / MSS
    };
    assert_eq!([ack(2, 9), ack(2, 7), ack(2, 5), ack(2, 3), ack(1, 1)], [12, 14, 16, 18, 18]);
    assert_eq!([ack(2, 9), ack(7, 7)], [18, 18]);
    assert_eq!(ack(1, 10), 19);
    c.on_congestion(19 * MSS, Time::ZERO);
    c.on_recovery_exit(u32::MAX, Time::ZERO);
    let before = c.cwnd();
    c.on_ack(MSS, 2 * before, None, Time::ZERO, false);
    assert_eq!(c.cwnd(), before, "in congestion avoidance only what was the limit grows");
}

//= https://www.rfc-editor.org/rfc/rfc9438#section-4.6
//= type=test
//# Implementations that use _cwnd_ MUST use other measures to prevent _cwnd_ from growing when the volume of bytes
//# in flight is smaller than _cwnd_.
#[test]
fn an_unused_window_does_not_grow() {
    for &kind in Kind::ALL {
        let mut c = start(kind);
        c.on_ack(5 * MSS, 5 * MSS, None, Time::ZERO, false);
        assert_eq!(c.cwnd(), 10 * MSS);
        c.on_congestion(10 * MSS, Time::ZERO);
        c.on_recovery_exit(u32::MAX, Time::ZERO);
        let before = c.cwnd();
        for s in 0..100 {
            c.on_ack(MSS, MSS, None, Time::from_secs(s), false);
        }
        assert_eq!(c.cwnd(), before);
    }
}

#[test]
fn one_cut_per_recovery_and_no_growth_in_it() {
    for (kind, left) in [(Kind::NewReno, 10_000), (Kind::Cubic, 14_000)] {
        let mut c = Controller::new(kind, MSS, 20 * MSS);
        assert_eq!(c.on_congestion(20 * MSS, Time::ZERO), left);
        assert_eq!(c.on_congestion(20 * MSS, Time::ZERO), left);
        ack(&mut c, 5 * MSS);
        assert_eq!((c.cwnd(), c.ssthresh()), (left, left));
        c.on_recovery_exit(u32::MAX, Time::ZERO);
        assert_eq!((c.cwnd(), c.ssthresh()), (left, left));
        assert!(c.on_congestion(left, Time::ZERO) < left);
    }
}

#[test]
fn a_timeout_leaves_one_segment_and_its_repetition_leaves_the_threshold() {
    for (kind, left) in [(Kind::NewReno, 10_000), (Kind::Cubic, 14_000)] {
        let mut c = Controller::new(kind, MSS, 20 * MSS);
        c.on_timeout(20 * MSS, Time::ZERO);
        assert_eq!((c.cwnd(), c.ssthresh()), (MSS, left));
        c.on_timeout(5 * MSS, Time::ZERO);
        assert_eq!((c.cwnd(), c.ssthresh()), (MSS, left), "section 3.1: held constant");
        ack(&mut c, MSS);
        c.on_timeout(6 * MSS, Time::ZERO);
        assert!(c.ssthresh() < left);
    }
}

#[test]
fn after_a_timeout_an_acknowledgement_counts_for_one_segment_until_the_outstanding_is_acknowledged() {
    let mut c = Controller::new(Kind::NewReno, MSS, 40 * MSS);
    c.on_timeout(40 * MSS, Time::ZERO);
    ack(&mut c, 15 * MSS);
    assert_eq!(c.cwnd(), 2 * MSS);
    c.on_recovery_exit(u32::MAX, Time::ZERO);
    assert_eq!(c.cwnd(), 2 * MSS, "leaving loss recovery opens nothing by itself");
    ack(&mut c, 2 * MSS);
    assert_eq!(c.cwnd(), 4 * MSS);
}

#[test]
fn a_timeout_in_recovery_does_not_cut_again_but_a_loss_after_it_does() {
    let mut c = Controller::new(Kind::NewReno, MSS, 40 * MSS);
    c.on_congestion(40 * MSS, Time::ZERO);
    c.on_timeout(30 * MSS, Time::ZERO);
    assert_eq!((c.cwnd(), c.ssthresh()), (MSS, 20 * MSS), "one cut per window of data");
    ack(&mut c, MSS);
    c.on_recovery_exit(MSS, Time::ZERO);
    (0..6).for_each(|_| ack(&mut c, MSS));
    assert_eq!(c.on_congestion(8 * MSS, Time::ZERO), 4 * MSS);
}

#[test]
fn idle_restart_slow_starts_towards_the_window_that_was() {
    for &kind in Kind::ALL {
        let mut c = Controller::new(kind, MSS, 100 * MSS);
        c.on_idle_restart(10 * MSS);
        assert_eq!(c.cwnd(), 10 * MSS);
        c.on_idle_restart(20 * MSS);
        assert_eq!(c.cwnd(), 10 * MSS, "never opens the window");
        c.on_congestion(10 * MSS, Time::ZERO);
        c.on_recovery_exit(u32::MAX, Time::ZERO);
        let low = c.ssthresh();
        (0..2000).for_each(|i| c.on_ack(MSS, c.cwnd(), None, Time::from_millis(10 * i), true));
        let reached = c.cwnd();
        c.on_idle_restart(2 * MSS);
        assert!(c.ssthresh() > low && c.ssthresh() >= reached / 4 * 3 - 3);
    }
}

#[test]
fn a_smaller_mss_keeps_the_window_and_a_larger_one_its_minimum() {
    let mut c = start(Kind::Cubic);
    c.set_mss(500);
    assert_eq!(c.cwnd(), 10 * MSS);
    c.on_timeout(10 * MSS, Time::ZERO);
    assert_eq!(c.cwnd(), 500);
    c.set_mss(9000);
    assert_eq!((c.cwnd(), c.ssthresh()), (9000, 18_000));
}

#[test]
fn the_algorithm_can_be_changed_in_flight() {
    let mut c = start(Kind::Cubic);
    c.on_congestion(10 * MSS, Time::ZERO);
    c.on_recovery_exit(u32::MAX, Time::ZERO);
    c.set_kind(Kind::NewReno);
    assert_eq!((c.kind(), c.cwnd()), (Kind::NewReno, 7 * MSS));
    ack(&mut c, 7 * MSS);
    assert_eq!(c.cwnd(), 8 * MSS);
}

#[derive(Clone, Debug)]
enum Step {
    Ack { bytes: u32, flight: u32, rtt_us: Option<u64>, wait_us: u64, limited: bool },
    Congestion(u32),
    Exit,
    Timeout(u32),
    Idle(u32),
    Mss(u32),
    Kind(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let ack = (any::<u32>(), any::<u32>(), any::<Option<u64>>(), 0u64..1 << 40, any::<bool>())
        .prop_map(|(bytes, flight, rtt_us, wait_us, limited)| Step::Ack { bytes, flight, rtt_us, wait_us, limited });
    prop_oneof![
        8 => ack,
        1 => any::<u32>().prop_map(Step::Congestion),
        1 => Just(Step::Exit),
        1 => any::<u32>().prop_map(Step::Timeout),
        1 => any::<u32>().prop_map(Step::Idle),
        1 => any::<u32>().prop_map(Step::Mss),
        1 => any::<bool>().prop_map(Step::Kind),
    ]
}

proptest! {
    /// For every report, nothing overflows, the window keeps its bounds, and an acknowledgement never opens it
    /// by more bytes than were outstanding, or one segment.
    #[test]
    fn bounds_hold_for_any_history(mss in any::<u32>(), iw in any::<u32>(), steps in proptest::collection::vec(step(), 1..100)) {
        let mut c = Controller::new(Kind::Cubic, mss, iw);
        let mut now = Time::ZERO;
        for step in steps {
            let before = c.cwnd();
            match step {
                Step::Ack { bytes, flight, rtt_us, wait_us, limited } => {
                    now += Duration::from_micros(wait_us);
                    let starting = c.in_slow_start();
                    c.on_ack(bytes, flight, rtt_us.map(Duration::from_micros), now, limited);
                    let grown = c.cwnd() - before;
                    prop_assert!(grown <= bytes.min(flight).max(c.window.mss()), "grew by {grown}");
                    prop_assert!(limited || starting || grown == 0);
                }
                Step::Congestion(flight) => { c.on_congestion(flight, now); }
                Step::Exit => c.on_recovery_exit(u32::MAX, now),
                Step::Timeout(flight) => c.on_timeout(flight, now),
                Step::Idle(iw) => c.on_idle_restart(iw),
                Step::Mss(mss) => c.set_mss(mss),
                Step::Kind(cubic) => c.set_kind(if cubic { Kind::Cubic } else { Kind::NewReno }),
            }
            prop_assert!(c.cwnd() >= c.window.mss() && c.cwnd() <= MAX_WINDOW);
            prop_assert!(c.ssthresh() >= 2 * c.window.mss() && c.ssthresh() <= MAX_WINDOW);
        }
    }
}
