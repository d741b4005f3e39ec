//! A cell of the fault matrix: the conditions of a run, as a value that can be printed and drawn from a seed. `run.rs`
//! runs it.

#![allow(dead_code)] // the test and the soak use their parts

use std::fmt;
use std::time::Duration;

use heddle::device::fault::{FaultPlan, Pcg};
use heddle::{ALL_ARCHITECTURES, Architecture};

/// The number that wraps around in the middle of the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrap {
    Nothing,
    /// The client's initial sequence number is 2^32 less this.
    Sequence(u32),
    /// The client's first timestamp is 2^32 ms less this.
    Timestamp(u32),
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Architectures of the server and of the client.
    pub architectures: [Architecture; 2],
    pub v6: bool,
    /// Queue pairs of each device, and connections, each on a queue of its own.
    pub queues: usize,
    /// Of the link, in bytes behind the link header.
    pub mtu: usize,
    /// Half of it is added to each direction's delay.
    pub rtt: Duration,
    /// Receive buffer of both ends; `None`: the stack's default.
    pub window: Option<u32>,
    /// Text of the fault plan, without the delay that makes the round-trip time.
    pub faults: String,
    pub wrap: Wrap,
    /// How far the clock jumps when half of the data has arrived.
    pub jump: Duration,
    /// Data each way of a connection.
    pub bytes: usize,
    /// Of the data and of the faults.
    pub seed: u64,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cell { architectures: [a, b], mtu, rtt, bytes, faults, .. } = self;
        write!(f, "{b} to {a}, IPv{}, mtu {mtu}, rtt {rtt:?}, {bytes} bytes", if self.v6 { 6 } else { 4 })?;
        if self.queues > 1 {
            write!(f, ", {} queues", self.queues)?;
        }
        if let Some(window) = self.window {
            write!(f, ", window {window}")?;
        }
        match self.wrap {
            Wrap::Nothing => {}
            Wrap::Sequence(before) => write!(f, ", ISN 2^32-{before}")?,
            Wrap::Timestamp(before) => write!(f, ", timestamp 2^32-{before}")?,
        }
        if !self.jump.is_zero() {
            write!(f, ", clock jumps {:?}", self.jump)?;
        }
        if !faults.is_empty() {
            write!(f, ", \"{faults}\"")?;
        }
        write!(f, ", seed {:#x}", self.seed)
    }
}

pub fn architecture(index: usize) -> Architecture {
    ALL_ARCHITECTURES[index % ALL_ARCHITECTURES.len()].parse().expect("a plan that is listed")
}

impl Cell {
    /// A link without faults or special events.
    pub fn plain(seed: u64) -> Cell {
        Cell {
            architectures: [architecture(0); 2],
            v6: false,
            queues: 1,
            mtu: 1500,
            rtt: Duration::from_millis(20),
            window: None,
            faults: String::new(),
            wrap: Wrap::Nothing,
            jump: Duration::ZERO,
            bytes: 100_000,
            seed,
        }
    }

    /// The plan of the fault device: the cell's faults and its delay.
    pub fn fault_plan(&self) -> FaultPlan {
        let mut plan: FaultPlan = self.faults.parse().expect("a fault plan");
        for faults in [&mut plan.inbound, &mut plan.outbound] {
            faults.timing.delay = self.rtt / 2;
            // The windows bound the data on the link; only a cell with a rate should lose frames at a full queue.
            if faults.timing.rate.is_none() {
                faults.timing.limit = usize::MAX;
            }
        }
        plan.seed = self.seed;
        plan
    }

    /// For how long the link or a queue is down at a time.
    pub fn outage(&self) -> Duration {
        let words: Vec<&str> = self.faults.split_whitespace().collect();
        let cycles = words.windows(3).filter(|words| ["flap", "full", "stall"].contains(&words[0]));
        let time = |text: &str| format!("unplug {text}").parse::<FaultPlan>().ok().and_then(|plan| plan.trouble.unplug);
        let time = |text: &str| time(text).map(|unplug| unplug.after);
        cycles.filter_map(|words| time(words[2])).max().unwrap_or_default()
    }

    /// Whether the clock jumps while nothing is in flight. A jump of half the timestamp space is realistic only without
    /// traffic: TS.Recent is invalid after it (RFC 7323 section 5.5), so a segment in flight across it, even a window
    /// probe, would be treated as the newest, and all later ones as old.
    pub fn jumps_in_silence(&self) -> bool {
        self.jump == HALF_CIRCLE
    }

    /// Whether damage is the only fault, so that every damaged packet must be detected by its receiver.
    pub fn counts_damage(&self) -> bool {
        let others = ["loss", "dup", "burst", "flap", "truncate", "rate", "scramble", "pad"];
        let once = !others.iter().any(|word| self.faults.contains(word));
        once && !self.v6 && self.faults.contains("corrupt") && !self.faults.contains("bits")
    }

    /// Whether frames are damaged at all.
    pub fn damages(&self) -> bool {
        ["corrupt", "scramble", "truncate"].iter().any(|word| self.faults.contains(word))
    }
}

/// Every level of every fault by itself, and some instructive combinations.
pub fn grid() -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut add = |change: &dyn Fn(&mut Cell)| {
        let mut cell = Cell::plain(cells.len() as u64 + 1);
        change(&mut cell);
        cells.push(cell);
    };
    for faults in [
        "loss 0.1%",
        "loss 1%",
        "loss 5%",
        "loss 10%",
        "loss 20%",
        "loss 30%",
        "in loss 10%",
        "out loss 10%",
        "burst 0.5% 20%",
        "burst 2% 30% 80%",
        "reorder 1% distance 3",
        "reorder 10% distance 10",
        "reorder 25% distance 300",
        "reorder 5ms",
        "dup 1%",
        "dup 10%",
        "dup 50%",
        "corrupt 0.5%",
        "corrupt 5%",
        "corrupt 1% bits 3",
        "scramble 2% 60",
        "truncate 5%",
        "pad 20%",
        "ce 10%",
        "flap 700ms 100ms",
        "flap 5s 3s",
        "flap 2s 60s",
        "full 10ms 5ms",
        "stall 20ms 10ms",
        "rate 1mbit limit 20",
        "rate 10mbit limit 1000 jitter 3ms",
        "loss 1% reorder 1% distance 5 dup 1% corrupt 1% truncate 1% pad 1%",
        "loss 3% reorder 3ms jitter 10ms dup 3%",
    ] {
        add(&|cell| {
            cell.faults = faults.to_owned();
            cell.v6 = cell.seed % 3 == 0;
        });
    }
    for window in [1, 2, 100, 536, 1460, 5000, 65_535, 1 << 20, 16 << 20] {
        add(&|cell| {
            cell.window = Some(window);
            cell.bytes = (window as usize * 200).min(cell.bytes);
        });
        add(&|cell| {
            cell.window = Some(window);
            cell.bytes = (window as usize * 100).min(cell.bytes);
            cell.faults = "loss 5%".to_owned();
        });
    }
    for (v6, mtu, bytes) in [
        (false, 68, 20_000),
        (false, 296, 50_000),
        (false, 576, 100_000),
        (false, 9000, 300_000),
        (false, 65_535, 1_000_000),
        (true, 1280, 100_000),
        (true, 9000, 300_000),
        (true, 65_535, 1_000_000),
    ] {
        for faults in ["", "loss 2%"] {
            add(&|cell| (cell.v6, cell.mtu, cell.bytes, cell.faults) = (v6, mtu, bytes, faults.to_owned()));
        }
    }
    for rtt in [0, 1, 100, 600] {
        for faults in ["", "loss 5%"] {
            add(&|cell| (cell.rtt, cell.faults) = (Duration::from_millis(rtt), faults.to_owned()));
        }
    }
    add(&|cell| (cell.rtt, cell.faults) = (Duration::from_millis(600), "loss 30%".to_owned()));
    for wrap in [
        Wrap::Sequence(1),
        Wrap::Sequence(2),
        Wrap::Sequence(1000),
        Wrap::Sequence(65_536),
        Wrap::Timestamp(1),
        Wrap::Timestamp(30),
        Wrap::Timestamp(200),
    ] {
        for faults in ["", "loss 5% reorder 5% distance 4"] {
            add(&|cell| (cell.wrap, cell.faults) = (wrap, faults.to_owned()));
        }
    }
    for jump in JUMPS {
        for faults in ["", "loss 5%"] {
            add(&|cell| (cell.jump, cell.faults) = (jump, faults.to_owned()));
        }
    }
    cells
}

/// Cells on devices of two and of four queue pairs, with a connection on each.
pub fn on_several_queues() -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut add = |change: &dyn Fn(&mut Cell)| {
        let seed = 0x9000 + cells.len() as u64;
        let mut cell = Cell { queues: 2 << (seed % 2), v6: seed.is_multiple_of(3), bytes: 30_000, ..Cell::plain(seed) };
        change(&mut cell);
        cells.push(cell);
    };
    for faults in [
        "",
        "loss 5%",
        "loss 20%",
        "burst 2% 30% 80%",
        "reorder 10% distance 10",
        "reorder 5ms",
        "dup 10%",
        "corrupt 5%",
        "truncate 5%",
        "flap 700ms 100ms",
        "full 10ms 5ms",
        "stall 20ms 10ms",
        "rate 10mbit limit 1000 jitter 3ms",
        "loss 1% reorder 1% distance 5 dup 1% corrupt 1% truncate 1% pad 1%",
    ] {
        add(&|cell| cell.faults = faults.to_owned());
    }
    for window in [100, 1460, 1 << 20] {
        add(&|cell| (cell.window, cell.bytes, cell.faults) = (Some(window), 10_000, "loss 5%".to_owned()));
    }
    add(&|cell| (cell.wrap, cell.faults) = (Wrap::Sequence(1000), "loss 5% reorder 5% distance 4".to_owned()));
    add(&|cell| (cell.v6, cell.mtu, cell.faults) = (false, 68, "loss 2%".to_owned()));
    add(&|cell| (cell.jump, cell.faults) = (JUMPS[0], "loss 5%".to_owned()));
    add(&|cell| cell.jump = HALF_CIRCLE);
    cells
}

/// An hour, 49.7 days (2^32 ms), 2^31 ms.
const JUMPS: [Duration; 3] = [Duration::from_secs(3600), Duration::from_millis(1 << 32), HALF_CIRCLE];
const HALF_CIRCLE: Duration = Duration::from_millis(1 << 31);

impl Cell {
    /// The cell of a seed. The low byte of the seed is the pair of architectures.
    pub fn draw(seed: u64) -> Cell {
        let mut rng = Pcg::new(seed, 1);
        let mut cell = Cell::plain(seed);
        let pair = (seed & 0xff) as usize;
        cell.architectures = [architecture(pair % 16), architecture(pair / 16)];
        cell.v6 = rng.below(2) == 1;
        if rng.below(3) == 0 {
            let sizes: &[usize] =
                if cell.v6 { &[1280, 1400, 9000, 65_535] } else { &[68, 100, 296, 576, 9000, 65_535] };
            cell.mtu = sizes[rng.below(sizes.len() as u32) as usize];
        }
        cell.rtt = Duration::from_millis([0, 1, 5, 20, 50, 100, 300, 600][rng.below(8) as usize]);
        if rng.below(3) == 0 {
            // Evenly over the orders of magnitude.
            cell.window = Some(1 << rng.below(25));
        }
        cell.faults = draw_faults(&mut rng);
        cell.wrap = match rng.below(8) {
            0 => Wrap::Sequence(1 + rng.below(100_000)),
            1 => Wrap::Timestamp(1 + rng.below(2000)),
            _ => Wrap::Nothing,
        };
        if rng.below(8) == 0 {
            cell.jump = JUMPS[rng.below(3) as usize];
        }
        let most = (cell.window.unwrap_or(u32::MAX) as usize).saturating_mul(200).min(cell.mtu * 400);
        cell.bytes = 1 + rng.below(most.min(2_000_000) as u32) as usize;
        cell.queues = [1, 1, 2, 4][rng.below(4) as usize];
        cell.bytes = cell.bytes.div_ceil(cell.queues);
        cell
    }
}

/// None to four different faults with levels between harmless and severe.
fn draw_faults(rng: &mut Pcg) -> String {
    let mut words = Vec::new();
    let mut drawn = [false; 12];
    for _ in 0..rng.below(5) {
        let percent = |rng: &mut Pcg, most: u32| format!("{}.{}%", rng.below(most), rng.below(10));
        let scope = ["both", "both", "in", "out"][rng.below(4) as usize];
        let kind = rng.below(12) as usize;
        // The same fault twice would exceed its level.
        if std::mem::replace(&mut drawn[kind], true) {
            continue;
        }
        if let 5 | 6 = kind {
            // A damaged bit and byte in one packet can cancel each other out, which no checksum can detect.
            (drawn[5], drawn[6]) = (true, true);
        }
        let fault = match kind {
            0 => format!("loss {}", percent(rng, 30)),
            // A burst is counted in frames, and an otherwise idle connection sends one for each time-out: a long burst
            // would also hit the last retransmission.
            1 => format!("burst 0.{}% {}%", 1 + rng.below(9), 40 + rng.below(30)),
            2 => format!("reorder {} distance {}", percent(rng, 25), 1 + rng.below(300)),
            3 => format!("reorder {}ms", 1 + rng.below(30)),
            4 => format!("dup {}", percent(rng, 50)),
            5 => format!("corrupt {}", percent(rng, 5)),
            // One byte: longer damage passes the checksum by chance, once in 65,536 times.
            6 => format!("scramble {} 1", percent(rng, 5)),
            7 => format!("truncate {}", percent(rng, 5)),
            8 => format!("pad {} ce {}", percent(rng, 50), percent(rng, 20)),
            9 => format!("jitter {}ms", 1 + rng.below(50)),
            10 => {
                let down = 1 + rng.below(3000);
                format!("flap {}ms {down}ms", out_of_step(4 * down + rng.below(10_000), down))
            }
            _ => format!("full {0}ms {1}ms stall {0}ms {1}ms", 10 + rng.below(100), 1 + rng.below(50)),
        };
        words.push(format!("{scope} {fault}"));
    }
    words.join(" ")
}

/// The up time of a link that is down for `down` milliseconds each time, `up` or a little more: retransmissions two
/// minutes apart, the longest time-out, must not all hit a down time.
fn out_of_step(up: u32, down: u32) -> u32 {
    const LONGEST_TIMEOUT: u32 = 120_000;
    let drifts = |up: &u32| {
        let phase = LONGEST_TIMEOUT % (up + down);
        phase.min(up + down - phase) > down
    };
    (up..).step_by(10).find(drifts).unwrap_or(up)
}
