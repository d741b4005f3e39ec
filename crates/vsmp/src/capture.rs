//! The wires of a machine's cards as a capture file (pcapng): each frame when its last bit is on the wire.
//!
//! Called by the cards, and by the workload that opens and closes the stretch of time that is captured. Its memory is
//! not the machine's, and it charges nothing: a run with a capture is the same run. What may never happen: a capture
//! that grows with the run, so it ends with its stretch.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dev::pcap::{Direction, Writer};

use crate::machine;
use crate::memory::from_system;

/// The frames of all cards in a stretch of time.
#[derive(Clone)]
pub struct WireCapture(Arc<Mutex<Inner>>);

struct Inner {
    writer: Writer<Vec<u8>>,
    /// The captured stretch, in cycles of the machine.
    stretch: Option<(u64, u64)>,
}

impl WireCapture {
    /// An empty capture that has not begun. Writing to memory does not fail.
    pub(crate) fn new() -> WireCapture {
        let writer = from_system(|| Writer::new(Vec::new())).expect("memory takes all that is written");
        WireCapture(Arc::new(Mutex::new(Inner { writer, stretch: None })))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A card by this name; returns its number in the capture.
    pub(crate) fn interface(&self, name: &str) -> u32 {
        from_system(|| self.inner().writer.interface(name)).expect("memory takes all that is written")
    }

    /// Captures from now on, for this many nanoseconds.
    pub(crate) fn open(&self, nanos: u64) {
        let now = machine::clock();
        self.inner().stretch = Some((now, now + machine::cycles(nanos)));
    }

    /// A frame is on the wire at a time, in cycles of the machine.
    pub(crate) fn frame(&self, interface: u32, at: u64, direction: Direction, frame: &[u8]) {
        let mut inner = self.inner();
        if inner.stretch.is_some_and(|(from, to)| (from..to).contains(&at)) {
            let write = || inner.writer.frame(interface, machine::nanos_of(at), direction, frame);
            from_system(write).expect("memory takes all that is written");
        }
    }

    /// The file, so far.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        from_system(|| self.inner().writer.get_ref().clone())
    }
}
