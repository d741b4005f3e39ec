//! The table of knobs. One entry each; sorted by name. All are of `net.ipv4`, except `net.core.default_qdisc`.

use core::time::Duration;

use super::{Knob, KnobForm};
use crate::config::{
    BufferSizes, Config, DataShare, Ecn, EcnOption, FastOpenKeys, MemoryLimits, MtuProbing, SynCookies,
};
use crate::congestion::Kind;

/// Bytes of a page, the unit of `tcp_mem`.
const PAGE: u64 = 4096;
const U32: i64 = u32::MAX as i64;
/// Largest buffer: the largest window.
const BUFFER: i64 = 1 << 30;

const PER_CONNECTION: &str = "the limit is one per connection (tcp_invalid_ratelimit): a shared one is a side channel";
const NO_TSO: &str = "super-segments are as large as the device and the windows allow";

const fn number(
    name: &'static str,
    meaning: &'static str,
    range: (i64, i64),
    get: fn(&Config) -> i64,
    set: fn(&mut Config, i64),
) -> Knob {
    Knob { name, meaning, idle: None, form: KnobForm::Number { range, get, set } }
}

const fn flag(name: &'static str, meaning: &'static str, get: fn(&Config) -> i64, set: fn(&mut Config, i64)) -> Knob {
    number(name, meaning, (0, 1), get, set)
}

const fn idle(
    name: &'static str,
    meaning: &'static str,
    range: (i64, i64),
    value: &'static str,
    why: &'static str,
) -> Knob {
    Knob { name, meaning, idle: Some(why), form: KnobForm::Idle { range, value } }
}

fn seconds(time: Duration) -> i64 {
    time.as_secs() as i64
}

fn from_seconds(value: i64) -> Duration {
    Duration::from_secs(value as u64)
}

fn sizes(sizes: &BufferSizes) -> [i64; 3] {
    [sizes.min, sizes.initial, sizes.max].map(i64::from)
}

fn to_sizes(values: [i64; 3]) -> BufferSizes {
    let [min, initial, max] = values.map(|value| value as u32);
    BufferSizes { min, initial, max }
}

/// Changes the data share; the memory stays the same.
fn set_share(config: &mut Config, scale: i64) {
    let (old, new) = (config.receive_share, DataShare(scale as i8));
    let memory = sizes(&config.receive_buffer).map(|text| old.memory(text as u32));
    config.receive_buffer = to_sizes(memory.map(|memory| new.data(memory).into()));
    config.receive_share = new;
}

/// Linux's form: four groups of eight hexadecimal digits, each a word in the machine's (little-endian) order.
fn key_text(key: &[u8; 16]) -> String {
    let words: Vec<String> =
        key.as_chunks::<4>().0.iter().map(|word| format!("{:08x}", u32::from_le_bytes(*word))).collect();
    words.join("-")
}

fn read_key(text: &str) -> Option<[u8; 16]> {
    let mut key = [0; 16];
    let mut groups = text.split('-');
    for word in key.as_chunks_mut::<4>().0 {
        let group = groups.next().filter(|group| (1..=8).contains(&group.len()))?;
        *word = u32::from_str_radix(group, 16).ok()?.to_le_bytes();
    }
    groups.next().is_none().then_some(key)
}

fn fast_open_keys(config: &Config) -> String {
    let keys = [config.fast_open_keys.primary, config.fast_open_keys.backup];
    let texts: Vec<String> = keys.iter().flatten().map(key_text).collect();
    if texts.is_empty() { key_text(&[0; 16]) } else { texts.join(",") }
}

fn set_fast_open_keys(config: &mut Config, text: &str) -> bool {
    let (primary, backup) = match text.split_once(',') {
        Some((primary, backup)) => (read_key(primary), Some(read_key(backup))),
        None => (read_key(text), None),
    };
    if primary.is_none() || backup == Some(None) {
        return false;
    }
    config.fast_open_keys = FastOpenKeys { primary, backup: backup.flatten() };
    true
}

fn set_congestion(config: &mut Config, text: &str) -> bool {
    match text.parse::<Kind>() {
        Ok(kind) => config.congestion = kind,
        Err(_) => return false,
    }
    true
}

fn set_discipline(config: &mut Config, text: &str) -> bool {
    config.pacing.on = text == "fq";
    ["fq", "fq_codel", "pfifo_fast", "pfifo", "noqueue"].contains(&text)
}

fn set_memory(config: &mut Config, pages: [i64; 3]) {
    let [low, pressure, high] = pages.map(|pages| pages as u64 * PAGE);
    config.memory = (high > 0).then_some(MemoryLimits { low, pressure, high });
}

fn set_probing(config: &mut Config, value: i64) {
    config.mtu_probing = match value {
        0 => MtuProbing::Off,
        1 => MtuProbing::AfterBlackHole,
        _ => MtuProbing::Always,
    };
}

/// Every knob, by name.
pub static KNOBS: &[Knob] = &[
    Knob {
        name: "default_qdisc",
        meaning: "queueing discipline of devices: `fq` paces every connection",
        idle: None,
        form: KnobForm::Word {
            expects: "`fq` (paces), or `fq_codel`, `pfifo_fast`, `pfifo` or `noqueue` (do not)",
            get: |c| if c.pacing.on { "fq".to_owned() } else { "pfifo_fast".to_owned() },
            set: set_discipline,
        },
    },
    idle(
        "tcp_abort_on_overflow",
        "reset a client when the accept queue is full",
        (0, 1),
        "0",
        "a client that was answered always has a place in the queue",
    ),
    number(
        "tcp_adv_win_scale",
        "share of tcp_rmem that is not for data: above 0 the part 1/2^n, else all but the part 1/2^-n",
        (-31, 31),
        |c| c.receive_share.0.into(),
        set_share,
    ),
    idle("tcp_autocorking", "gather small writes while the device is busy", (0, 1), "1", "Nagle's rule gathers them"),
    number(
        "tcp_base_mss",
        "MSS that passes nearly everywhere, bytes of data and options",
        (48, 65_535),
        |c| c.base_mss.into(),
        |c, v| c.base_mss = v as u16,
    ),
    idle("tcp_challenge_ack_limit", "challenge ACKs of the host in a second", (0, U32), "2147483647", PER_CONNECTION),
    idle(
        "tcp_comp_sack_delay_ns",
        "longest delay of a compressed SACK, nanoseconds",
        (0, U32),
        "1000000",
        "every SACK is sent at once",
    ),
    idle("tcp_comp_sack_nr", "SACKs that may be compressed into one", (0, 255), "44", "every SACK is sent at once"),
    idle(
        "tcp_comp_sack_slack_ns",
        "slack of a compressed SACK, nanoseconds",
        (0, U32),
        "100000",
        "every SACK is sent at once",
    ),
    Knob {
        name: "tcp_congestion_control",
        meaning: "congestion control of new connections",
        idle: None,
        form: KnobForm::Word { expects: "`cubic` or `reno`", get: |c| linux_name(c.congestion), set: set_congestion },
    },
    flag("tcp_dsack", "report duplicate segments by D-SACK", |c| c.dsack.into(), |c, v| c.dsack = v == 1),
    number(
        "tcp_early_retrans",
        "tail-loss probe: 3 and 4 on, else off",
        (0, 4),
        |c| if c.tail_loss_probe { 3 } else { 0 },
        |c, v| c.tail_loss_probe = v >= 3,
    ),
    number(
        "tcp_ecn",
        "ECN: 0 off, 1 request and accept, 2 accept, 3 request and accept AccECN, 4 accept AccECN and request ECN, 5 accept AccECN",
        (0, 5),
        |c| c.ecn as i64,
        |c, v| c.ecn = Ecn::from_number(v as u8).unwrap_or_default(),
    ),
    flag(
        "tcp_ecn_fallback",
        "repeat a SYN without ECN when it got no answer",
        |c| c.ecn_fallback.into(),
        |c, v| c.ecn_fallback = v == 1,
    ),
    number(
        "tcp_ecn_option",
        "AccECN options: 0 never, 1 when needed, 2 often",
        (0, 2),
        |c| c.ecn_option as i64,
        |c, v| c.ecn_option = EcnOption::from_number(v as u8).unwrap_or_default(),
    ),
    number(
        "tcp_ecn_option_beacon",
        "minimum number of AccECN options in a round trip that has as many acknowledgements; 0: no minimum",
        (0, 255),
        |c| c.ecn_option_beacon.into(),
        |c, v| c.ecn_option_beacon = v as u8,
    ),
    flag(
        "tcp_ecn_pure_acks",
        "with AccECN, send acknowledgements without data as ECN-capable (ECN++; Linux has no such knob)",
        |c| c.ecn_pure_acks.into(),
        |c, v| c.ecn_pure_acks = v == 1,
    ),
    number(
        "tcp_fastopen",
        "Fast Open bits: 1 client, 2 server, 4 client without cookie, 0x200 server without cookie, 0x400 all listeners; others are stored without effect",
        (0, i32::MAX as i64),
        |c| c.fast_open.0.into(),
        |c, v| c.fast_open.0 = v as u32,
    ),
    number(
        "tcp_fastopen_blackhole_timeout_sec",
        "no Fast Open towards a destination after a SYN with it went unanswered, seconds; doubled each time; 0 off",
        (0, 86_400),
        |c| seconds(c.fast_open_black_hole_timeout),
        |c, v| c.fast_open_black_hole_timeout = from_seconds(v),
    ),
    Knob {
        name: "tcp_fastopen_key",
        meaning: "secret of Fast Open cookies, optionally followed by a comma and the previous one",
        idle: None,
        form: KnobForm::Word {
            expects: "four groups of hexadecimal digits, as 00112233-44556677-8899aabb-ccddeeff, or two such keys with a comma between",
            get: fast_open_keys,
            set: set_fast_open_keys,
        },
    },
    number(
        "tcp_fin_timeout",
        "longest stay of a closed socket in FIN-WAIT-2, seconds",
        (1, 86_400),
        |c| seconds(c.fin_wait_2),
        |c, v| c.fin_wait_2 = from_seconds(v),
    ),
    number(
        "tcp_frto",
        "F-RTO, which detects spurious time-outs: 0 off, 1 and 2 on",
        (0, 2),
        |c| c.frto.into(),
        |c, v| c.frto = v as u8,
    ),
    number(
        "tcp_invalid_ratelimit",
        "least time between two answers to unacceptable segments, milliseconds",
        (0, 60_000),
        |c| c.challenge_ack_interval.as_millis() as i64,
        |c, v| c.challenge_ack_interval = Duration::from_millis(v as u64),
    ),
    number(
        "tcp_keepalive_intvl",
        "time between keep-alive probes, seconds",
        (1, 32_767),
        |c| seconds(c.keep_alive.interval),
        |c, v| c.keep_alive.interval = from_seconds(v),
    ),
    number(
        "tcp_keepalive_probes",
        "unanswered keep-alive probes that end a connection",
        (1, 127),
        |c| c.keep_alive.probes.into(),
        |c, v| c.keep_alive.probes = v as u8,
    ),
    number(
        "tcp_keepalive_time",
        "silence before the first keep-alive probe, seconds",
        (1, 32_767),
        |c| seconds(c.keep_alive.idle),
        |c, v| c.keep_alive.idle = from_seconds(v),
    ),
    idle(
        "tcp_limit_output_bytes",
        "data of one socket queued at the device, bytes",
        (0, U32),
        "4194304",
        "device credit limits it",
    ),
    number(
        "tcp_max_orphans",
        "maximum number of connections without a user that wait for the peer",
        (0, U32),
        |c| c.max_orphans.into(),
        |c, v| c.max_orphans = v as u32,
    ),
    idle(
        "tcp_max_reordering",
        "largest reordering that is believed, segments",
        (1, U32),
        "300",
        "RACK measures reordering in time",
    ),
    number(
        "tcp_max_syn_backlog",
        "maximum number of half-open connections of a listener",
        (1, 1 << 20),
        |c| c.syn_backlog.into(),
        |c, v| c.syn_backlog = v as u32,
    ),
    number(
        "tcp_max_tw_buckets",
        "maximum number of connections in TIME-WAIT",
        (0, U32),
        |c| c.max_time_wait.into(),
        |c, v| c.max_time_wait = v as u32,
    ),
    Knob {
        name: "tcp_mem",
        meaning: "memory of the buffers of all connections, pages of 4096 bytes: pressure ends, pressure begins, limit; 0 0 0: \
                  derived from the machine's memory when a stack is built",
        idle: None,
        form: KnobForm::Triple {
            range: (0, 1 << 40),
            get: |c| {
                let memory = c.memory.unwrap_or(MemoryLimits { low: 0, pressure: 0, high: 0 });
                [memory.low, memory.pressure, memory.high].map(|bytes| (bytes / PAGE) as i64)
            },
            set: set_memory,
        },
    },
    number(
        "tcp_min_rtt_wlen",
        "time for which the least round trip counts, seconds",
        (0, 86_400),
        |c| seconds(c.rto.least_window),
        |c, v| c.rto.least_window = from_seconds(v),
    ),
    number(
        "tcp_min_snd_mss",
        "smallest MSS that a peer can force upon us, bytes",
        (48, 65_535),
        |c| c.min_mss.into(),
        |c, v| c.min_mss = v as u16,
    ),
    idle("tcp_min_tso_segs", "least segments of a super-segment", (1, 255), "2", NO_TSO),
    flag(
        "tcp_moderate_rcvbuf",
        "receive buffers grow by themselves",
        |c| c.receive_growth.into(),
        |c, v| c.receive_growth = v == 1,
    ),
    number(
        "tcp_mtu_probe_floor",
        "smallest MSS to which black holes drive a connection that searches, bytes of data and options",
        (48, 65_535),
        |c| c.mtu_probe_floor.into(),
        |c, v| c.mtu_probe_floor = v as u16,
    ),
    number(
        "tcp_mtu_probing",
        "search for the path's MTU upwards from tcp_base_mss: 0 never, 1 after tcp_retries1 time-outs in a row, 2 always",
        (0, 2),
        |c| c.mtu_probing as i64,
        set_probing,
    ),
    idle("tcp_no_metrics_save", "do not remember metrics of destinations", (0, 1), "1", "metrics are never remembered"),
    number(
        "tcp_notsent_lowat",
        "unsent data at which a writer is blocked, bytes",
        (0, U32),
        |c| c.not_sent_low_water.into(),
        |c, v| c.not_sent_low_water = v as u32,
    ),
    number(
        "tcp_orphan_retries",
        "retransmissions and probes of a closed socket; 0 takes 8",
        (0, 255),
        |c| c.orphan_retries.into(),
        |c, v| c.orphan_retries = v as u8,
    ),
    number(
        "tcp_pacing_ca_ratio",
        "pacing rate in congestion avoidance, per cent of cwnd / SRTT",
        (0, 1000),
        |c| c.pacing.avoidance.into(),
        |c, v| c.pacing.avoidance = v as u16,
    ),
    number(
        "tcp_pacing_ss_ratio",
        "pacing rate in slow start, per cent of cwnd / SRTT",
        (0, 1000),
        |c| c.pacing.slow_start.into(),
        |c, v| c.pacing.slow_start = v as u16,
    ),
    number(
        "tcp_probe_interval",
        "time after which the search for the path's MTU starts again, seconds",
        (0, U32),
        |c| seconds(c.mtu_probe_interval),
        |c, v| c.mtu_probe_interval = from_seconds(v),
    ),
    number(
        "tcp_probe_threshold",
        "sizes closer than this are not distinguished by the search for the path's MTU, bytes",
        (0, 65_535),
        |c| c.mtu_probe_threshold.into(),
        |c, v| c.mtu_probe_threshold = v as u16,
    ),
    number(
        "tcp_recovery",
        "RACK bits: 1 on (always), 2 D-SACKs do not widen the reordering window, 4 three SACKed segments alone do not indicate a loss",
        (0, 7),
        |c| c.recovery.into(),
        |c, v| c.recovery = v as u8,
    ),
    idle(
        "tcp_reordering",
        "reordering that is expected at first, segments",
        (1, 127),
        "3",
        "RACK measures reordering in time",
    ),
    number(
        "tcp_retries1",
        "retransmissions after which a black hole is suspected",
        (0, 255),
        |c| c.suspicious_retries.into(),
        |c, v| c.suspicious_retries = v as u8,
    ),
    number(
        "tcp_retries2",
        "retransmissions after which a connection is given up",
        (0, 255),
        |c| c.retries.into(),
        |c, v| c.retries = v as u8,
    ),
    idle("tcp_rfc1337", "ignore resets in TIME-WAIT", (0, 1), "1", "they are always ignored"),
    Knob {
        name: "tcp_rmem",
        meaning: "receive buffer: least under memory pressure, at the beginning, at most; bytes, see tcp_adv_win_scale",
        idle: None,
        form: KnobForm::Triple {
            range: (1, BUFFER),
            get: |c| sizes(&c.receive_buffer).map(|text| c.receive_share.memory(text as u32).into()),
            set: |c, v| c.receive_buffer = to_sizes(v.map(|memory| c.receive_share.data(memory as u32).into())),
        },
    },
    number(
        "tcp_rto_max_ms",
        "largest retransmission time-out, milliseconds",
        (1000, 120_000),
        |c| c.rto.max_rto.as_millis() as i64,
        |c, v| c.rto.max_rto = Duration::from_millis(v as u64),
    ),
    number(
        "tcp_rto_min_us",
        "smallest retransmission time-out, microseconds",
        (1, 1_000_000),
        |c| c.rto.min_rto.as_micros() as i64,
        |c, v| c.rto.min_rto = Duration::from_micros(v as u64),
    ),
    flag("tcp_sack", "offer and accept selective acknowledgements", |c| c.sack.into(), |c, v| c.sack = v == 1),
    idle(
        "tcp_shrink_window",
        "take back an announced window when memory is short",
        (0, 1),
        "0",
        "a window that was announced is always honoured (RFC 9293, SHLD-14)",
    ),
    flag(
        "tcp_slow_start_after_idle",
        "return to the initial window after an idle time",
        |c| c.slow_start_after_idle.into(),
        |c, v| c.slow_start_after_idle = v == 1,
    ),
    idle(
        "tcp_stdurg",
        "the urgent pointer as in RFC 1122",
        (0, 1),
        "0",
        "it points behind the urgent byte, as in RFC 6093",
    ),
    number(
        "tcp_syn_linear_timeouts",
        "time-outs of a SYN before its RTO backs off",
        (0, 127),
        |c| c.syn_linear_timeouts.into(),
        |c, v| c.syn_linear_timeouts = v as u8,
    ),
    number(
        "tcp_syn_retries",
        "retransmissions of a SYN",
        (1, 127),
        |c| c.syn_retries.into(),
        |c, v| c.syn_retries = v as u8,
    ),
    number(
        "tcp_synack_retries",
        "retransmissions of a SYN-ACK",
        (0, 255),
        |c| c.syn_ack_retries.into(),
        |c, v| c.syn_ack_retries = v as u8,
    ),
    number(
        "tcp_syncookies",
        "SYN cookies: 0 never, 1 when the SYN queue is full, 2 always",
        (0, 2),
        |c| c.syn_cookies as i64,
        |c, v| c.syn_cookies = SynCookies::from_number(v as u8).unwrap_or_default(),
    ),
    idle("tcp_thin_linear_timeouts", "no back-off for thin streams", (0, 1), "0", "RFC 6298 requires the back-off"),
    // Linux also has 2 (timestamps without a random offset); the offset keeps the uptime secret.
    number(
        "tcp_timestamps",
        "offer and accept timestamps: 0 no, 1 and 2 yes, always with a random offset",
        (0, 2),
        |c| c.timestamps.into(),
        |c, v| c.timestamps = v > 0,
    ),
    idle("tcp_tso_rtt_log", "round trip that halves super-segments, log2 of microseconds", (0, 31), "9", NO_TSO),
    idle("tcp_tso_win_divisor", "share of the congestion window in one super-segment", (0, U32), "3", NO_TSO),
    number(
        "tcp_tw_reuse",
        "an active open may take over a tuple in TIME-WAIT: 0 never, 1 if timestamps allow it, 2 on loopback only",
        (0, 2),
        |c| c.reuse_time_wait.into(),
        |c, v| c.reuse_time_wait = v as u8,
    ),
    flag(
        "tcp_window_scaling",
        "offer and accept window scaling",
        |c| c.window_scaling.into(),
        |c, v| c.window_scaling = v == 1,
    ),
    Knob {
        name: "tcp_wmem",
        meaning: "send buffer: least under memory pressure, at the beginning, at most; bytes, including the overhead of data",
        idle: None,
        form: KnobForm::Triple {
            range: (1, BUFFER),
            get: |c| sizes(&c.send_buffer),
            set: |c, v| c.send_buffer = to_sizes(v),
        },
    },
    idle(
        "tcp_workaround_signed_windows",
        "never announce a window above 32767 unscaled",
        (0, 1),
        "0",
        "such peers no longer exist",
    ),
    flag(
        "tolerate_missing_ts",
        "accept segments that lack the negotiated timestamp (FreeBSD's name)",
        |c| (!c.strict_timestamps).into(),
        |c, v| c.strict_timestamps = v == 0,
    ),
];

/// As Linux calls it.
fn linux_name(kind: Kind) -> String {
    match kind {
        Kind::NewReno => "reno".to_owned(),
        other => other.name().to_owned(),
    }
}
