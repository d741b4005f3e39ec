//! A device whose received frames come from a capture.
//!
//! Frames recorded as transmitted are left out: they were the answers, and the stack under test sends its own. Frames
//! are spread over the receive queues by [`rss`](crate::rss) in the order of the capture. Frames that the stack
//! transmits are counted as frames out and discarded.

use std::collections::VecDeque;
use std::fmt;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use observe::{Counter, Counters, DropReason, Time};
use pktbuf::{PktBuf, SharedBuf};
use sync::{Atomic, Parker, Platform, Real};
use wire::ethernet::MacAddr;
use wire::rss::SYMMETRIC_KEY;

use super::format::{Direction, link_type};
use super::read::{ReadError, Reader};
use super::since;
use crate::fault::TimeSource;
use crate::rss::Rss;
use crate::{Capabilities, Device, Framing, NotTransmitted, QueuePair, RxQueue, TxQueue, WaitOutcome, Wake};

/// When frames of a capture arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplayPacing {
    /// As fast as they are taken.
    #[default]
    AtOnce,
    /// At the intervals of the capture, on the device's clock.
    AsCaptured,
}

/// The configuration of a [`Replay`] device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayConfig {
    /// Queue pairs, at least 1.
    pub queues: usize,
    /// The framing. Frames of the capture's interfaces with another link type are left out.
    pub framing: Framing,
    /// Address of the stack's end; unspecified for bare packets.
    pub mac: MacAddr,
    /// Largest payload of a frame in bytes; longer ones in the capture are dropped, and counted.
    pub mtu: usize,
    /// When frames arrive.
    pub pacing: ReplayPacing,
    /// The device counts as gone once the capture has been played; otherwise it stays silent.
    pub gone_at_end: bool,
}

impl Default for ReplayConfig {
    fn default() -> ReplayConfig {
        ReplayConfig {
            queues: 1,
            framing: Framing::Ethernet,
            mac: MacAddr([0x02, 0x68, 0x65, 0x64, 0x00, 0x0c]),
            mtu: 1500,
            pacing: ReplayPacing::AtOnce,
            gone_at_end: false,
        }
    }
}

/// A frame that is still to arrive.
struct Pending {
    due: Time,
    hash: Option<u32>,
    bytes: Vec<u8>,
}

/// A device that replays a capture.
pub struct Replay {
    capabilities: Capabilities,
    queues: Vec<QueuePair>,
    counters: Arc<Counters>,
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay").field("capabilities", &self.capabilities).finish_non_exhaustive()
    }
}

impl Replay {
    /// Reads the whole capture and makes the device.
    pub fn new<R: Read>(
        capture: Reader<R>,
        config: ReplayConfig,
        clock: impl TimeSource + 'static,
    ) -> Result<Replay, ReadError> {
        Replay::on_platform::<R, Real>(capture, config, clock)
    }

    /// The same on platform `P`, for simulated machines: not part of the API of `heddle`, which re-exports this type.
    #[doc(hidden)]
    pub fn on_platform<R: Read, P: Platform>(
        capture: Reader<R>,
        config: ReplayConfig,
        clock: impl TimeSource + 'static,
    ) -> Result<Replay, ReadError> {
        let counters = Arc::new(Counters::shared());
        let clock: Arc<dyn TimeSource> = Arc::new(clock);
        let queues = spread(capture, &config, &counters)?;
        let origin = clock.now();
        let pair = |coming| QueuePair {
            rx: Box::new(ReplayRx::<P> {
                coming,
                gone_at_end: config.gone_at_end,
                clock: clock.clone(),
                origin,
                counters: counters.clone(),
                bell: Arc::new(ReplayWake { woken: P::AtomicBool::new(false), parker: Parker::new() }),
            }),
            tx: Box::new(ReplayTx { counters: counters.clone() }),
        };
        let queues = queues.into_iter().map(pair).collect();
        let capabilities = Capabilities {
            framing: config.framing,
            mtu: config.mtu,
            mac: config.mac,
            queue_pairs: config.queues,
            tx_checksum: false,
            rx_checksum: false,
            segmentation: None,
            coalescing: false,
            rss_key: Some(SYMMETRIC_KEY),
            region: None,
        };
        Ok(Replay { capabilities, queues, counters })
    }
}

fn spread<R: Read>(
    capture: Reader<R>,
    config: &ReplayConfig,
    counters: &Counters,
) -> Result<Vec<VecDeque<Pending>>, ReadError> {
    let rss = Rss::new(&SYMMETRIC_KEY, config.queues).framed(config.framing);
    let mut queues: Vec<VecDeque<Pending>> = (0..config.queues).map(|_| VecDeque::new()).collect();
    let mut start = None;
    for frame in capture {
        let frame = frame?;
        if frame.direction == Direction::Outbound || frame.link_type != link_type(config.framing) {
            continue;
        }
        if frame.data.len() > config.mtu + config.framing.longest_header() {
            counters.count_drop(DropReason::FrameTooLong);
            continue;
        }
        let start = *start.get_or_insert(frame.time);
        let due = if config.pacing == ReplayPacing::AtOnce { Time::ZERO } else { since(start, frame.time) };
        let hash = rss.hash_bytes(&frame.data);
        queues[rss.queue(hash)].push_back(Pending { due, hash, bytes: frame.data });
    }
    Ok(queues)
}

impl Device for Replay {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn name(&self) -> &str {
        "replay"
    }

    fn take_queues(&mut self) -> Vec<QueuePair> {
        std::mem::take(&mut self.queues)
    }

    fn counters(&self) -> Option<Arc<Counters>> {
        Some(self.counters.clone())
    }
}

struct ReplayWake<P: Platform> {
    woken: P::AtomicBool,
    parker: Parker<P>,
}

impl<P: Platform> Wake for ReplayWake<P> {
    fn wake(&self) {
        self.woken.store(true, std::sync::atomic::Ordering::Release);
        self.parker.ring();
    }
}

struct ReplayRx<P: Platform> {
    coming: VecDeque<Pending>,
    gone_at_end: bool,
    clock: Arc<dyn TimeSource>,
    origin: Time,
    counters: Arc<Counters>,
    bell: Arc<ReplayWake<P>>,
}

impl<P: Platform> ReplayRx<P> {
    /// Time until the next frame; zero when it is due, `None` after the last.
    fn until_next(&self) -> Option<Duration> {
        let due = self.origin + self.coming.front()?.due.since(Time::ZERO);
        Some(due.since(self.clock.now()))
    }
}

impl<P: Platform> RxQueue for ReplayRx<P> {
    fn receive(&mut self, batch: &mut Vec<PktBuf>, max: usize) -> usize {
        let mut received = 0;
        while received < max && self.until_next() == Some(Duration::ZERO) {
            let Some(coming) = self.coming.pop_front() else { break };
            match PktBuf::from_slice(&coming.bytes) {
                Some(mut frame) => {
                    frame.meta_mut().flow_hash = coming.hash;
                    batch.push(frame);
                    received += 1;
                }
                None => self.counters.count_drop(DropReason::NoBuffer),
            }
        }
        received
    }

    fn wait(&mut self, timeout: Option<Duration>) -> WaitOutcome {
        let deadline = timeout.map(|timeout| self.clock.now() + timeout);
        loop {
            let next = self.until_next();
            if next == Some(Duration::ZERO) {
                return WaitOutcome::Ready;
            }
            if self.bell.woken.swap(false, std::sync::atomic::Ordering::AcqRel) {
                return WaitOutcome::Woken;
            }
            if self.gone() {
                return WaitOutcome::Gone;
            }
            let left = deadline.map(|deadline| deadline.since(self.clock.now()));
            if left == Some(Duration::ZERO) {
                return WaitOutcome::TimedOut;
            }
            self.bell.parker.park(next.into_iter().chain(left).min());
        }
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.bell.clone()
    }

    fn gone(&self) -> bool {
        self.gone_at_end && self.coming.is_empty()
    }
}

struct ReplayTx {
    counters: Arc<Counters>,
}

impl TxQueue for ReplayTx {
    fn credit(&self) -> usize {
        usize::MAX
    }

    fn transmit(&mut self, frame: PktBuf) -> Result<(), PktBuf> {
        drop(frame);
        self.counters.increment(Counter::FramesOut);
        Ok(())
    }

    fn transmit_shared(&mut self, frame: SharedBuf) -> Result<(), NotTransmitted> {
        drop(frame);
        self.counters.increment(Counter::FramesOut);
        Ok(())
    }

    fn flush(&mut self) {}
}
