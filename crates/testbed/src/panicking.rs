//! A device around the in-memory one that panics on demand: when it transmits or delivers certain frames. The stack's
//! own code has no hook for this.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use dev::{Capabilities, Device, NotTransmitted, QueuePair, RxQueue, TxQueue, WaitOutcome, Wake};
use pktbuf::{PktBuf, SharedBuf};

/// Data at which a device panics.
pub const MARK: &[u8] = b"panic, please";

/// Silences the messages of injected panics, but of no others.
pub fn mute() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if panic.payload_as_str() != Some("planted") {
                print(panic);
            }
        }));
    });
}

/// How often the device will still panic, by cause.
#[derive(Default)]
pub struct PanicSwitch {
    /// When it transmits a frame with [`MARK`] in it.
    pub transmit: AtomicU32,
    /// When it transmits a SYN without an ACK.
    pub syn: AtomicU32,
    /// When it transmits a SYN with an ACK.
    pub syn_ack: AtomicU32,
    /// When it transmits a reset.
    pub reset: AtomicU32,
    /// When it delivers a frame with [`MARK`] in it.
    pub receive: AtomicU32,
    /// Whenever its receive queue is polled.
    pub always: AtomicU32,
}

/// One panic, if any is left.
fn trip(left: &AtomicU32) {
    let one_less = |left: u32| left.checked_sub(1);
    if left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok() {
        panic!("planted");
    }
}

fn marked(frame: &[u8]) -> bool {
    frame.windows(MARK.len()).any(|window| window == MARK)
}

/// SYN and ACK of a TCP segment over IPv4 without options.
fn syn_and_ack(frame: &[u8]) -> (bool, bool) {
    let flags = if frame.get(23) == Some(&6) { frame.get(47).copied().unwrap_or(0) } else { 0 };
    (flags & 2 != 0, flags & 16 != 0)
}

/// Whether this is a TCP segment with RST, over IP without options.
fn is_reset(frame: &[u8]) -> bool {
    let flags = match (frame.get(12..14), frame.get(23), frame.get(20)) {
        (Some([0x08, 0x00]), Some(6), _) => frame.get(47),
        (Some([0x86, 0xdd]), _, Some(6)) => frame.get(67),
        _ => None,
    };
    flags.is_some_and(|flags| flags & 4 != 0)
}

/// The device: it panics according to its [`PanicSwitch`], and otherwise behaves as `inner`.
pub struct PanickingDevice<D> {
    inner: D,
    plant: Arc<PanicSwitch>,
}

impl<D: Device> PanickingDevice<D> {
    /// Wraps `inner`; returns its switch too, which is off.
    pub fn new(inner: D) -> (Self, Arc<PanicSwitch>) {
        let plant = Arc::new(PanicSwitch::default());
        (PanickingDevice { inner, plant: plant.clone() }, plant)
    }
}

impl<D: Device> Device for PanickingDevice<D> {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn take_queues(&mut self) -> Vec<QueuePair> {
        let wrap = |pair: QueuePair| QueuePair {
            rx: Box::new(PanickingRx { inner: pair.rx, plant: self.plant.clone() }),
            tx: Box::new(PanickingTx { inner: pair.tx, plant: self.plant.clone() }),
        };
        self.inner.take_queues().into_iter().map(wrap).collect()
    }
}

struct PanickingRx {
    inner: Box<dyn RxQueue>,
    plant: Arc<PanicSwitch>,
}

impl RxQueue for PanickingRx {
    fn receive(&mut self, batch: &mut Vec<PktBuf>, max: usize) -> usize {
        trip(&self.plant.always);
        let from = batch.len();
        let count = self.inner.receive(batch, max);
        if batch[from..].iter().any(|frame| marked(frame)) {
            trip(&self.plant.receive);
        }
        count
    }

    fn wait(&mut self, timeout: Option<Duration>) -> WaitOutcome {
        self.inner.wait(timeout)
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.inner.waker()
    }

    fn gone(&self) -> bool {
        self.inner.gone()
    }
}

struct PanickingTx {
    inner: Box<dyn TxQueue>,
    plant: Arc<PanicSwitch>,
}

impl PanickingTx {
    /// Panics if that was requested for a frame like this one.
    fn inspect(&self, frame: &[u8]) {
        if marked(frame) {
            trip(&self.plant.transmit);
        }
        match syn_and_ack(frame) {
            (true, true) => trip(&self.plant.syn_ack),
            (true, false) => trip(&self.plant.syn),
            _ => {}
        }
        if is_reset(frame) {
            trip(&self.plant.reset);
        }
    }
}

impl TxQueue for PanickingTx {
    fn credit(&self) -> usize {
        self.inner.credit()
    }

    fn transmit(&mut self, frame: PktBuf) -> Result<(), PktBuf> {
        self.inspect(&frame);
        self.inner.transmit(frame)
    }

    fn transmit_shared(&mut self, frame: SharedBuf) -> Result<(), NotTransmitted> {
        self.inspect(&frame);
        self.inner.transmit_shared(frame)
    }

    fn flush(&mut self) {
        self.inner.flush();
    }
}
