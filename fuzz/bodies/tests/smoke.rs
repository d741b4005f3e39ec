//! Every body with bytes from a seeded generator: a short form of `cargo fuzz`, on the stable toolchain.
//!
//! A failing input is printed as the number of its round, which reproduces it.

use std::sync::{Mutex, PoisonError};

/// The pool of packet buffers, which one body counts, is per process.
static TURN: Mutex<()> = Mutex::new(());

/// A xorshift generator (Marsaglia 2003).
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Calls `body` with `rounds` inputs, and prints the one on which it failed.
fn rounds(rounds: u64, longest: usize, body: impl Fn(&[u8]) + std::panic::RefUnwindSafe) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for round in 0..rounds {
        let data = bytes(round + 1, 1 + (round as usize * 7919) % longest);
        if let Err(panic) = std::panic::catch_unwind(|| body(&data)) {
            eprintln!("in round {round}, with {} bytes", data.len());
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn wire_formats() {
    rounds(20_000, 200, bodies::wire_formats);
    // Headers with a valid beginning reach deeper.
    for first in [0x45, 0x60, 0x50, 134, 135, 136, 0x11, 130] {
        rounds(2000, 120, |data| {
            let mut data = data.to_vec();
            data[0] = first;
            bodies::wire_formats(&data);
        });
    }
}

#[test]
fn texts() {
    const WORDS: [&str; 12] =
        ["loss", "1%", "reorder", "5ms", " ", ",", ":", "connp-l", "msgp", "6", "10.0.0.1/24", "fe80::1/64"];
    rounds(5000, 40, |data| {
        bodies::texts(data);
        let text: String = data.iter().map(|byte| WORDS[usize::from(*byte) % WORDS.len()]).collect();
        bodies::texts(text.as_bytes());
    });
}

#[test]
fn knobs() {
    const WORDS: [&str; 12] =
        ["0", "1", "2", " ", "-", "4096", "cubic", "tcp_mem", "=", "4294967296", "\t", "tcp_rmem"];
    rounds(5000, 20, |data| {
        bodies::knobs(data);
        let text: String = data.iter().map(|byte| WORDS[usize::from(*byte) % WORDS.len()]).collect();
        let knob = char::from(data[0]);
        bodies::knobs(format!("{knob}{text}").as_bytes());
        bodies::knobs(text.as_bytes());
    });
}

#[test]
fn scripts() {
    const WORDS: [&str; 16] = [
        "+0 ",
        "< ",
        "> ",
        "S. ",
        "0:0(0) ",
        "ack 1 ",
        "win 5 ",
        "<mss 9,nop>",
        "socket(",
        "..., ",
        ") = 3\n",
        "`",
        "%{",
        "\n",
        "{a=1}",
        "1:2",
    ];
    rounds(5000, 60, |data| {
        bodies::scripts(data);
        let text: String = data.iter().map(|byte| WORDS[usize::from(*byte) % WORDS.len()]).collect();
        bodies::scripts(text.as_bytes());
    });
}

#[test]
fn captures() {
    rounds(5000, 300, |data| {
        bodies::captures(data);
        for magic in [[0x0a, 0x0d, 0x0d, 0x0a], [0xd4, 0xc3, 0xb2, 0xa1]] {
            bodies::captures(&[&magic[..], data].concat());
        }
    });
}

#[test]
fn offloads() {
    rounds(3000, 1200, bodies::offloads);
}

/// Every architecture gets the same number of inputs.
#[test]
fn stacks() {
    for (number, arch) in heddle::ALL_ARCHITECTURES.iter().enumerate() {
        let arch = arch.parse().expect("a plan of the list");
        rounds(inputs(), 1500, |data| {
            bodies::under(arch, &[&[number as u8], data].concat());
        });
    }
}

/// The inputs are effective: they complete handshakes, exceed windows and reach timers.
#[test]
fn stacks_are_reached() {
    use observe::Counter::*;
    let seen = Mutex::new(observe::CounterSnapshot::default());
    rounds(800, 1500, |data| {
        let counters = bodies::under(heddle::Architecture::named("up"), data);
        *seen.lock().unwrap_or_else(PoisonError::into_inner) += &counters;
    });
    let seen = seen.into_inner().unwrap_or_else(PoisonError::into_inner);
    let wanted = [
        ConnectionsOpened,
        ConnectionsAccepted,
        ConnectionsEstablished,
        ConnectionsReset,
        ConnectionsRefused,
        Retransmits,
        Timeouts,
        OutOfOrderQueued,
        TimeWaitEntered,
        ResetsIn,
        ResetsOut,
        ChallengeAcksOut,
    ];
    for counter in wanted {
        assert!(seen.get(counter) > 0, "no input led to {counter:?}");
    }
}

/// Inputs for each architecture: a few seconds of them, or `HEDDLE_FUZZ_ROUNDS`.
fn inputs() -> u64 {
    std::env::var("HEDDLE_FUZZ_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(400)
}
