//! Captures: recording the frames of a device, reading captures, and replaying them into a stack.
//!
//! [`CaptureDevice`] wraps any device and records both directions as pcapng for Wireshark: one interface per queue pair,
//! with the link type of the device's framing, nanosecond time stamps, direction flags. [`Reader`] reads pcapng and classic pcap. [`Replay`] is a device whose
//! received frames come from a capture.
//!
//! Recording never affects the frames. All queues write through one buffer under one lock (class `Pool`, the innermost:
//! only the writer is called with it held). When writing fails - a full disk - recording ends, the error is kept for
//! [`Recording::take_error`], and every frame passes as without recording.
//!
//! A frame is recorded as the stack sees it. With offloads it shows, like a capture on any host, transmitted
//! super-segments and incomplete checksums.

mod format;
mod read;
mod replay;
mod write;

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use observe::{Counters, Time};
use pktbuf::{PktBuf, SharedBuf};
use sync::{Guard, Lock, LockClass, LockKind, Platform, Real};

pub use self::format::Direction;
pub use self::read::{Captured, ReadError, Reader};
pub use self::replay::{Replay, ReplayConfig, ReplayPacing};
pub use self::write::Writer;

use crate::fault::{PlatformClock, TimeSource};
use crate::{Capabilities, Device, NotTransmitted, QueuePair, RxQueue, TxQueue, WaitOutcome, Wake};

/// Bytes gathered before the writer is called.
const BUFFER: usize = 64 << 10;

/// A device that records its frames.
pub struct CaptureDevice<P: Platform = Real> {
    name: String,
    inner: Box<dyn Device>,
    recording: Arc<Recording<P>>,
    /// The number of its first queue pair's interface in the recording.
    first: u32,
}

impl<P: Platform> fmt::Debug for CaptureDevice<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaptureDevice")
            .field("device", &self.inner)
            .field("recording", &self.recording)
            .finish_non_exhaustive()
    }
}

impl CaptureDevice<Real> {
    /// Wraps `device`, writing to `writer` with the machine's clock.
    pub fn new(device: Box<dyn Device>, writer: impl Write + Send + 'static) -> CaptureDevice<Real> {
        // The platform's clock has an arbitrary start; captures count from 1970.
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        let epoch = since_1970.saturating_sub(Real::now());
        CaptureDevice::on_platform(device, writer, PlatformClock::<Real>::default(), epoch)
    }
}

impl<P: Platform> CaptureDevice<P> {
    /// Wraps `device` on platform `P`. `epoch` is added to `clock`, in nanoseconds, to count from 1970.
    pub fn on_platform(
        device: Box<dyn Device>,
        writer: impl Write + Send + 'static,
        clock: impl TimeSource + 'static,
        epoch: u64,
    ) -> CaptureDevice<P> {
        let Capabilities { queue_pairs: queues, framing, .. } = *device.capabilities();
        let sink: Box<dyn Write + Send> = Box::new(writer);
        let open = || -> io::Result<Writer<Output>> {
            let mut writer = Writer::new(BufWriter::with_capacity(BUFFER, sink))?;
            for queue in 0..queues {
                writer.framed_interface(&format!("{}/{queue}", device.name()), framing)?;
            }
            Ok(writer)
        };
        let state = match open() {
            Ok(writer) => CaptureState { writer: Some(writer), frames: 0, error: None },
            Err(error) => CaptureState { writer: None, frames: 0, error: Some(error) },
        };
        let recording = Recording {
            state: Lock::new(LockKind::Blocking, LockClass::Pool, state),
            lock_index: crate::wrapper_lock_index(),
            clock: Box::new(clock),
            epoch,
        };
        CaptureDevice { name: device.name().to_owned(), inner: device, recording: Arc::new(recording), first: 0 }
    }

    /// Wraps another device, whose frames go into an existing recording: one file for several devices.
    pub fn join(device: Box<dyn Device>, recording: &Arc<Recording<P>>) -> CaptureDevice<P> {
        let (name, mut first) = (device.name().to_owned(), 0);
        let Capabilities { queue_pairs: queues, framing, .. } = *device.capabilities();
        recording.lock().attempt(|writer| {
            for queue in 0..queues {
                let interface = writer.framed_interface(&format!("{name}/{queue}"), framing)?;
                first = if queue == 0 { interface } else { first };
            }
            Ok(())
        });
        CaptureDevice { name, inner: device, recording: recording.clone(), first }
    }

    /// The recording, for its status while the device is in use.
    pub fn recording(&self) -> Arc<Recording<P>> {
        self.recording.clone()
    }
}

impl<P: Platform> Device for CaptureDevice<P> {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn take_queues(&mut self) -> Vec<QueuePair> {
        let queues = self.inner.take_queues().into_iter().zip(self.first..);
        queues
            .map(|(pair, interface)| QueuePair {
                rx: Box::new(CaptureRx { rx: pair.rx, interface, recording: self.recording.clone() }),
                tx: Box::new(CaptureTx { tx: pair.tx, interface, recording: self.recording.clone() }),
            })
            .collect()
    }

    fn counters(&self) -> Option<Arc<Counters>> {
        self.inner.counters()
    }
}

type Output = BufWriter<Box<dyn Write + Send>>;

struct CaptureState {
    /// `None` after an error: recording has ended.
    writer: Option<Writer<Output>>,
    frames: u64,
    error: Option<io::Error>,
}

impl CaptureState {
    /// Does something with the writer; ends the recording if it fails.
    fn attempt(&mut self, act: impl FnOnce(&mut Writer<Output>) -> io::Result<()>) -> bool {
        let Some(writer) = &mut self.writer else { return false };
        match act(writer) {
            Ok(()) => true,
            Err(error) => {
                self.error = Some(error);
                self.writer = None;
                false
            }
        }
    }
}

/// The recording of a [`CaptureDevice`].
pub struct Recording<P: Platform = Real> {
    state: Lock<CaptureState, P>,
    lock_index: u32,
    clock: Box<dyn TimeSource>,
    epoch: u64,
}

impl<P: Platform> fmt::Debug for Recording<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording")
            .field("frames", &self.frames())
            .field("is_recording", &self.is_recording())
            .finish_non_exhaustive()
    }
}

impl<P: Platform> Recording<P> {
    /// Takes the error that ended the recording. `None`: recording continues, or the error was already taken (then
    /// [`is_recording`](Recording::is_recording) is false).
    pub fn take_error(&self) -> Option<io::Error> {
        self.lock().error.take()
    }

    /// Whether frames are still being recorded.
    pub fn is_recording(&self) -> bool {
        self.lock().writer.is_some()
    }

    /// Frames given to the writer so far.
    pub fn frames(&self) -> u64 {
        self.lock().frames
    }

    /// Writes everything buffered to the operating system.
    pub fn flush(&self) {
        self.lock().attempt(Writer::flush);
    }

    fn lock(&self) -> Guard<'_, CaptureState, P> {
        self.state.lock_nested(self.lock_index)
    }

    fn record<'a>(&self, interface: u32, direction: Direction, frames: impl ExactSizeIterator<Item = &'a [u8]>) {
        if frames.len() == 0 {
            return;
        }
        let time = self.clock.now().as_nanos().saturating_add(self.epoch);
        let mut state = self.lock();
        for frame in frames {
            if !state.attempt(|writer| writer.frame(interface, time, direction, frame)) {
                return;
            }
            state.frames += 1;
        }
    }
}

struct CaptureRx<P: Platform> {
    rx: Box<dyn RxQueue>,
    interface: u32,
    recording: Arc<Recording<P>>,
}

impl<P: Platform> RxQueue for CaptureRx<P> {
    fn receive(&mut self, batch: &mut Vec<PktBuf>, max: usize) -> usize {
        let from = batch.len();
        let received = self.rx.receive(batch, max);
        self.recording.record(self.interface, Direction::Inbound, batch[from..].iter().map(|frame| &**frame));
        received
    }

    fn wait(&mut self, timeout: Option<Duration>) -> WaitOutcome {
        self.rx.wait(timeout)
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.rx.waker()
    }

    fn pollable(&self) -> Option<std::os::fd::RawFd> {
        self.rx.pollable()
    }

    fn next_due(&self) -> Option<Time> {
        self.rx.next_due()
    }

    fn gone(&self) -> bool {
        self.rx.gone()
    }
}

struct CaptureTx<P: Platform> {
    tx: Box<dyn TxQueue>,
    interface: u32,
    recording: Arc<Recording<P>>,
}

impl<P: Platform> CaptureTx<P> {
    fn record<'a>(&self, frames: impl ExactSizeIterator<Item = &'a [u8]>) {
        self.recording.record(self.interface, Direction::Outbound, frames);
    }
}

impl<P: Platform> TxQueue for CaptureTx<P> {
    fn credit(&self) -> usize {
        self.tx.credit()
    }

    /// Records the frame unless the device has no room for it; a frame that the device then still refuses is recorded
    /// once per attempt.
    fn transmit(&mut self, frame: PktBuf) -> Result<(), PktBuf> {
        if self.tx.credit() == 0 {
            return self.tx.transmit(frame);
        }
        self.record(std::iter::once(&*frame));
        self.tx.transmit(frame)
    }

    /// The recording reads the bytes that the holders share.
    fn transmit_shared(&mut self, frame: SharedBuf) -> Result<(), NotTransmitted> {
        if self.tx.credit() > 0 {
            self.record(std::iter::once(&*frame));
        }
        self.tx.transmit_shared(frame)
    }

    /// One lock of the recording for all frames that the device will certainly accept now; the others stay in `frames`.
    fn transmit_batch(&mut self, frames: &mut VecDeque<PktBuf>) {
        while !frames.is_empty() {
            let sure = self.tx.credit().min(frames.len());
            if sure == 0 {
                return;
            }
            self.record(frames.iter().take(sure).map(|frame| &**frame));
            let left = frames.len() - sure;
            if left == 0 {
                return self.tx.transmit_batch(frames);
            }
            while frames.len() > left
                && let Some(frame) = frames.pop_front()
            {
                if let Err(back) = self.tx.transmit(frame) {
                    return frames.push_front(back);
                }
            }
        }
    }

    fn flush(&mut self) {
        self.tx.flush();
    }
}

/// Nanoseconds of a capture as the stack's time, counted from the capture's first frame.
fn since(start: u64, time: u64) -> Time {
    Time::from_nanos(time.saturating_sub(start))
}
