//! Administration while a stack runs: routes with attributes, and parameters of TCP.
//!
//! Nothing that is per process: a limit of memory is compared with the pool, which the two stacks of a run share, so
//! they would influence each other.

use arbitrary::{Result, Unstructured};
use testbed::subject::Step;

/// Targets of routes: the peer alone, its network, the default; for both protocols.
const NETWORKS: [&str; 6] = ["10.0.0.2", "10.0.0.0/24", "default", "fd00::2", "fd00::/64", "10.0.0.2 via 10.0.0.9"];

/// Parameters that affect segments, with values that arbitrary numbers would rarely reach.
const SETTINGS: [(&str, &[&str]); 14] = [
    ("tcp_rmem", &["4096 8192 16384", "4096 131072 6291456", "4096 4096 4096", "2304 40000 40000"]),
    ("tcp_adv_win_scale", &["1", "-2", "2", "-31", "31", "0"]),
    ("tcp_wmem", &["4096 16384 4194304", "4096 4096 4096"]),
    ("tcp_moderate_rcvbuf", &["0", "1"]),
    ("tcp_window_scaling", &["0", "1"]),
    ("tcp_timestamps", &["0", "1"]),
    ("tcp_sack", &["0", "1"]),
    ("tcp_congestion_control", &["reno", "cubic"]),
    ("tcp_slow_start_after_idle", &["0", "1"]),
    ("tcp_mtu_probing", &["0", "1", "2"]),
    ("tcp_ecn", &["0", "1", "2", "3", "4", "5"]),
    ("tcp_syncookies", &["0", "1", "2"]),
    ("tcp_notsent_lowat", &["1", "1000", "4294967295"]),
    ("tcp_min_snd_mss", &["48", "1000"]),
];

/// A route to the peer, added or removed, or an invalid text.
pub fn route(u: &mut Unstructured<'_>) -> Result<Step> {
    let mut text = (*u.choose(&NETWORKS)?).to_owned();
    if u.ratio(1, 3)? {
        return Ok(Step::Unroute(text));
    }
    for _ in 0..u.int_in_range(0..=3)? {
        let value = u.arbitrary::<u16>()?;
        let word = match u.int_in_range(0..=4)? {
            0 => format!(" mtu {value}"),
            1 => format!(" mtu lock {value}"),
            2 => format!(" advmss {value}"),
            3 => format!(" initcwnd {}", value % 300),
            _ => format!(" initrwnd {value}"),
        };
        text.push_str(&word);
    }
    Ok(Step::Route(text))
}

/// A parameter, set to an allowed value or to any number.
pub fn knob(u: &mut Unstructured<'_>) -> Result<Step> {
    let (name, values) = *u.choose(&SETTINGS)?;
    let value = if u.ratio(7, 8)? { (*u.choose(values)?).to_owned() } else { u.arbitrary::<i32>()?.to_string() };
    Ok(Step::Knob { name, value })
}
