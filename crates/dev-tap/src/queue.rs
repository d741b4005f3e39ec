//! The queues of a TAP device.
//!
//! A read needs a buffer before the frame's length is known. With segmentation a frame may have 64 KiB, so the queue
//! keeps one large buffer and reads into that. A frame that fits a smaller buffer is copied into one (30 ns for an
//! ordinary frame, against 600 ns for the read) and the large buffer is kept, so that queued frames hold little more
//! memory than they need: at most 72 KiB for 16 KiB. Without segmentation the spare buffer is as large as the longest
//! frame, and nothing is copied.
//!
//! The offload header is in the headroom of the frame's buffer, so that header and frame are one piece of memory: the kernel
//! takes 100 ns less for `read` and `write` of one piece than for `readv` and `writev` of two, a tenth of a small frame's time.
//! Only a frame that others hold is written in two pieces, because its buffer cannot be written.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

use dev::segment::{NoBuffer, Splitter};
use dev::{Capabilities, Framing, NotTransmitted, QueuePair, RxQueue, TxQueue, WaitOutcome, Wake};
use observe::{Counters, DropReason};
use pktbuf::{Checksum, HEADROOM, Meta, PktBuf, SharedBuf};

use crate::{sys, vnet};

/// The [`TxQueue::credit`] of a queue that accepts frames: the kernel does not report how many.
const CREDIT: usize = 256;

/// The state shared by all queues of a device.
#[derive(Debug)]
pub struct TapShared {
    /// The error number with which the device vanished, 0 while it is present.
    gone: AtomicI32,
    /// Drops by reason.
    pub counters: Arc<Counters>,
}

impl TapShared {
    /// A device that is present.
    pub fn new() -> TapShared {
        TapShared { gone: AtomicI32::new(0), counters: Arc::new(Counters::shared()) }
    }

    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed) != 0
    }

    /// Why the device is gone, if it is.
    pub fn gone_because(&self) -> Option<io::Error> {
        match self.gone.load(Ordering::Relaxed) {
            0 => None,
            number => Some(io::Error::from_raw_os_error(number)),
        }
    }

    fn vanish(&self, number: i32) {
        self.gone.store(number, Ordering::Relaxed);
    }
}

/// Makes the queue pairs, each from its descriptor and the event counter that wakes its receiver.
pub fn pairs(
    fds: impl Iterator<Item = (OwnedFd, OwnedFd)>,
    capabilities: &Capabilities,
    header_len: usize,
    link: &Arc<TapShared>,
) -> Vec<QueuePair> {
    let longest =
        if capabilities.coalescing { 65_535 } else { capabilities.mtu } + capabilities.framing.longest_header();
    let pair = |(index, (fd, event)): (usize, (OwnedFd, OwnedFd))| {
        let fd = Arc::new(fd);
        let bell = Arc::new(TapWake { event, woken: AtomicBool::new(false) });
        let rx = TapRx {
            fd: fd.clone(),
            index: index as u16,
            header_len,
            longest,
            framing: capabilities.framing,
            spare: None,
            datagrams: None,
            bell,
            link: link.clone(),
        };
        let tx = TapTx {
            fd,
            header_len,
            mtu: capabilities.mtu,
            framing: capabilities.framing,
            offloads: capabilities.tx_checksum,
            segments: capabilities.segmentation.is_some(),
            blocked: false,
            link: link.clone(),
        };
        QueuePair { rx: Box::new(rx), tx: Box::new(tx) }
    };
    fds.enumerate().map(pair).collect()
}

/// Wakes a waiting receiver.
struct TapWake {
    event: OwnedFd,
    woken: AtomicBool,
}

impl Wake for TapWake {
    fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        sys::raise(self.event.as_fd());
    }
}

struct TapRx {
    fd: Arc<OwnedFd>,
    index: u16,
    header_len: usize,
    longest: usize,
    framing: Framing,
    /// A buffer in which the next read may put a frame of any length.
    spare: Option<PktBuf>,
    /// A super-segment of UDP datagrams that has been delivered in part.
    datagrams: Option<Splitter>,
    bell: Arc<TapWake>,
    link: Arc<TapShared>,
}

impl TapRx {
    /// Reads one frame; `None` when there is none now.
    fn read(&mut self) -> Option<PktBuf> {
        loop {
            let mut buffer = match self.spare.take() {
                Some(buffer) => buffer,
                // The frame waits in the kernel until there is memory.
                None => PktBuf::alloc(self.longest)?,
            };
            buffer.reset(HEADROOM - self.header_len);
            match sys::read_frame(self.fd.as_fd(), buffer.append(self.header_len + self.longest)) {
                Ok(len) => {
                    if let Some(frame) = self.accept(buffer, len) {
                        return Some(frame);
                    }
                }
                Err(error) => {
                    self.spare = Some(buffer);
                    if error.kind() != io::ErrorKind::Interrupted {
                        self.note(&error);
                        return None;
                    }
                }
            }
        }
    }

    /// Checks that the `len` bytes read, header and frame, are a valid frame; `None` if not.
    fn accept(&mut self, mut buffer: PktBuf, len: usize) -> Option<PktBuf> {
        let mut header = [0; vnet::LEN];
        header[..self.header_len].copy_from_slice(&buffer[..self.header_len]);
        let received = match vnet::decode(&header) {
            Some(received) if len >= self.header_len + self.framing.least() => received,
            _ => {
                self.spare = Some(buffer);
                self.link.counters.count_drop(DropReason::DeviceError);
                return None;
            }
        };
        buffer.truncate(len);
        buffer.pull_front(self.header_len);
        let mut frame = self.unload(buffer)?;
        let meta = frame.meta_mut();
        meta.queue = self.index;
        meta.checksum = received.checksum;
        meta.segment_size = received.segment_size;
        if received.datagrams {
            match Splitter::framed(self.framing, frame) {
                Ok(datagrams) => self.datagrams = Some(datagrams),
                Err(frame) => return Some(frame),
            }
            return self.next_datagram();
        }
        Some(frame)
    }

    /// Moves a frame to a smaller buffer if one is enough, so that the large one can be used again.
    fn unload(&mut self, mut buffer: PktBuf) -> Option<PktBuf> {
        if !buffer.is_oversized() {
            return Some(buffer);
        }
        let frame = PktBuf::from_slice(&buffer);
        buffer.truncate(0);
        self.spare = Some(buffer);
        if frame.is_none() {
            self.link.counters.count_drop(DropReason::NoBuffer);
        }
        frame
    }

    fn next_datagram(&mut self) -> Option<PktBuf> {
        loop {
            match self.datagrams.as_mut()?.next_piece() {
                Some(Ok(mut datagram)) => {
                    datagram.meta_mut().checksum = Checksum::Verified;
                    return Some(datagram);
                }
                Some(Err(NoBuffer)) => self.link.counters.count_drop(DropReason::NoBuffer),
                None => self.datagrams = None,
            }
        }
    }

    fn note(&self, error: &io::Error) {
        match error.raw_os_error() {
            Some(libc::EAGAIN) => {}
            // EFAULT: the queue was shut down while it was being read.
            Some(number @ (libc::EBADFD | libc::ENODEV | libc::EFAULT | libc::EIO)) => self.link.vanish(number),
            _ => self.link.counters.count_drop(DropReason::DeviceError),
        }
    }
}

impl RxQueue for TapRx {
    fn receive(&mut self, batch: &mut Vec<PktBuf>, max: usize) -> usize {
        let from = batch.len();
        while batch.len() - from < max {
            match self.next_datagram().or_else(|| self.read()) {
                Some(frame) => batch.push(frame),
                None => break,
            }
        }
        batch.len() - from
    }

    fn wait(&mut self, timeout: Option<Duration>) -> WaitOutcome {
        if self.datagrams.is_some() {
            return WaitOutcome::Ready;
        }
        // A deadline beyond the range of the clock is no deadline.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if self.bell.woken.swap(false, Ordering::AcqRel) {
                return WaitOutcome::Woken;
            }
            if self.link.is_gone() {
                return WaitOutcome::Gone;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let event = self.bell.event.as_fd();
            let polled = sys::poll(self.fd.as_fd(), libc::POLLIN, Some(event), left);
            if polled.event {
                sys::lower(event);
            }
            if polled.readable {
                return WaitOutcome::Ready;
            }
            if polled.error {
                self.link.vanish(libc::EBADFD);
            } else if left == Some(Duration::ZERO) && !polled.event {
                return WaitOutcome::TimedOut;
            }
        }
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.bell.clone()
    }

    fn pollable(&self) -> Option<RawFd> {
        Some(self.fd.as_raw_fd())
    }

    fn gone(&self) -> bool {
        self.datagrams.is_none() && self.link.is_gone()
    }
}

struct TapTx {
    fd: Arc<OwnedFd>,
    header_len: usize,
    mtu: usize,
    framing: Framing,
    offloads: bool,
    segments: bool,
    /// The last frame did not fit.
    blocked: bool,
    link: Arc<TapShared>,
}

impl TapTx {
    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Whether the kernel completes checksums and segments super-segments.
    fn leaves_work(&self) -> bool {
        self.offloads && self.header_len != 0
    }

    /// Whether a frame is not too long; one that is, is dropped and counted.
    fn admits(&self, frame: &[u8], meta: &Meta) -> bool {
        let tagged = self.framing == Framing::Ethernet && frame.get(12..14) == Some(&[0x81, 0x00]);
        let link_header = if tagged { self.framing.longest_header() } else { self.framing.header_len() };
        let longest = if meta.segment_size != 0 && self.segments { 65_535 } else { self.mtu } + link_header;
        let fits = frame.len() <= longest;
        if !fits {
            self.link.counters.count_drop(DropReason::FrameTooLong);
        }
        fits
    }

    /// Notes the outcome of a write; false if the kernel has no room for the frame now.
    fn written(&mut self, outcome: &io::Result<usize>) -> bool {
        match outcome {
            Ok(_) => {
                self.blocked = false;
                true
            }
            Err(error) => !self.refused(error),
        }
    }

    /// Handles the kernel's refusal of a frame; true if the frame can be offered again.
    fn refused(&mut self, error: &io::Error) -> bool {
        let reason = match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => {
                self.blocked = true;
                return true;
            }
            // A write to an interface that is down fails with EIO; it may come up again.
            Some(libc::EIO) => DropReason::InterfaceDown,
            Some(number @ (libc::EBADFD | libc::ENODEV)) => {
                self.link.vanish(number);
                DropReason::InterfaceDown
            }
            Some(libc::ENOMEM | libc::ENOBUFS) => DropReason::NoBuffer,
            _ => DropReason::DeviceError,
        };
        self.link.counters.count_drop(reason);
        false
    }
}

impl TxQueue for TapTx {
    fn credit(&self) -> usize {
        if self.blocked && !sys::poll(self.fd(), libc::POLLOUT, None, Some(Duration::ZERO)).writable {
            return 0;
        }
        CREDIT
    }

    fn transmit(&mut self, mut frame: PktBuf) -> Result<(), PktBuf> {
        if !self.admits(&frame, frame.meta()) {
            return Ok(());
        }
        let Some(header) = vnet::encode(self.framing, &mut frame, self.leaves_work()) else {
            self.link.counters.count_drop(DropReason::SegmentationFailed);
            return Ok(());
        };
        let header = &header[..self.header_len];
        let outcome = if frame.headroom() >= header.len() {
            frame.push_front(header.len()).copy_from_slice(header);
            let outcome = sys::write_frame(self.fd(), &frame);
            frame.pull_front(header.len());
            outcome
        } else {
            sys::write_pieces(self.fd(), header, &frame)
        };
        if self.written(&outcome) { Ok(()) } else { Err(frame) }
    }

    /// The kernel reads the bytes from the buffer that the holders share, unless they have to be changed first.
    fn transmit_shared(&mut self, frame: SharedBuf) -> Result<(), NotTransmitted> {
        let Some(header) = vnet::describe(self.framing, &frame, frame.meta(), self.leaves_work()) else {
            return dev::transmit_own(self, frame);
        };
        if !self.admits(&frame, frame.meta()) {
            return Ok(());
        }
        let outcome = sys::write_pieces(self.fd(), &header[..self.header_len], &frame);
        if self.written(&outcome) { Ok(()) } else { Err(NotTransmitted::NoRoom(frame)) }
    }

    /// Every frame has been written already.
    fn flush(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A receiver with a spare super-segment buffer, without a device.
    fn receiver() -> TapRx {
        let nothing = || OwnedFd::from(std::fs::File::open("/dev/null").expect("it opens"));
        TapRx {
            fd: Arc::new(nothing()),
            index: 0,
            header_len: vnet::LEN,
            longest: 65_535 + Framing::Ethernet.longest_header(),
            framing: Framing::Ethernet,
            spare: None,
            datagrams: None,
            bell: Arc::new(TapWake { event: nothing(), woken: AtomicBool::new(false) }),
            link: Arc::new(TapShared::new()),
        }
    }

    /// Frames of any length end up in a buffer that is not much larger, and the large one remains for the next read.
    #[test]
    fn a_frame_goes_up_in_a_buffer_of_about_its_size() {
        let mut rx = receiver();
        for (length, most) in
            [(60, 2048), (1514, 2048), (1900, 16_384), (8000, 16_384), (14_500, 16_384), (40_000, 73_728)]
        {
            let mut buffer = PktBuf::alloc(rx.longest).expect("a buffer");
            buffer.append(length).fill(7);
            let frame = rx.unload(buffer).expect("a frame");
            assert!(frame.len() == length && frame.iter().all(|byte| *byte == 7));
            let held = frame.headroom() + frame.len() + frame.tailroom();
            assert!(held <= most, "{held} bytes for {length}");
            assert_eq!(rx.spare.take().is_some(), most < 73_728, "{length}");
        }
        assert_eq!(rx.link.counters.snapshot().dropped(DropReason::NoBuffer), 0);
    }
}
