//! The asynchronous runtime in which sockets are served, and the signals that end it.

use std::fs::File;
use std::future::Future;
use std::io;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// Descriptors of a runtime: an epoll set with its waker, and a pair for signals with copies of one end.
const DESCRIPTORS: usize = 8;

/// Threads of a runtime: its workers, and as many again to replace workers that wait for a disk.
pub fn threads() -> usize {
    2 * std::thread::available_parallelism().map_or(1, usize::from)
}

/// A runtime with one worker per CPU.
///
/// # Errors
/// The system provides no threads or descriptors.
pub fn new() -> Result<Runtime, Failure> {
    let built = has_descriptors(DESCRIPTORS).and_then(|()| Builder::new_multi_thread().enable_all().build());
    built.map_err(|error| {
        Failure::Failed(format!("cannot start threads: {error}; raise the limits (`ulimit -u`, `ulimit -n`)"))
    })
}

/// Whether this many descriptors can be opened. Without one for signals the runtime would panic; this returns an error.
fn has_descriptors(count: usize) -> io::Result<()> {
    let first = File::open("/dev/null")?;
    (1..count).map(|_| first.try_clone()).collect::<io::Result<Vec<_>>>().map(drop)
}

/// Time within which the runtime notices the second of two signals that it has read together.
const BOTH_NOTICED: Duration = Duration::from_millis(20);

/// The signal that requests a report from a service.
pub struct ReportSignal(Signal);

impl ReportSignal {
    /// Starts to handle SIGUSR1, which would otherwise end the process. Must be called inside the runtime.
    ///
    /// # Errors
    /// The system has no room for another signal handler.
    pub fn listen() -> Result<ReportSignal, Failure> {
        register(SignalKind::user_defined1()).map(ReportSignal)
    }

    /// Waits for the next one.
    pub async fn wait(&mut self) {
        // It never ends: the runtime outlives its waiters.
        let _ = self.0.recv().await;
    }

    /// After another signal: whether this one was sent before it. The runtime learns of two signals one after the other, in the
    /// order of their numbers, and its tasks run meanwhile.
    pub async fn was_sent_before(&mut self) -> bool {
        tokio::time::timeout(BOTH_NOTICED, self.wait()).await.is_ok()
    }
}

fn register(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::Failed(format!("cannot receive signals: {error}; stop some programs")))
}

/// Ctrl-C and SIGTERM.
pub struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// Starts to listen for them. Must be called inside the runtime.
    ///
    /// # Errors
    /// The system has no room for another signal handler.
    pub fn listen() -> Result<Stop, Failure> {
        Ok(Stop { interrupt: register(SignalKind::interrupt())?, terminate: register(SignalKind::terminate())? })
    }

    /// Waits for the next one.
    pub async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Runs `task` to its end; `None` if the signal arrives first.
    pub async fn or<T>(&mut self, task: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            result = task => Some(result),
            () = self.wait() => None,
        }
    }
}
