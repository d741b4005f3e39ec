//! The machine: the stack, its sockets, its clock, and the blocked calls.
//!
//! Time moves in `usleep`, in `netdev_receive`, by a microsecond in every `gettimeofday` (packetdrill spins on it), and
//! while the script's own thread waits in a call. After every move everything due at that moment runs, including
//! attempts of blocked calls, so that their effects have an exact time whenever their thread wakes. The thread's first
//! `gettimeofday` afterwards also returns that time: packetdrill uses it as the end of the call.

use std::collections::HashMap;
use std::thread::ThreadId;
use std::time::Duration;

use drill::host::Host;
use observe::Time;
use posix::Sockets;
use sync::Real;

use crate::flags::Flags;
use crate::numbers::KernelNumbers;

/// Longest wait in virtual time for a packet, and of a call of the script's own thread: packetdrill has no limit here.
const LONGEST_WAIT: Duration = Duration::from_secs(200);
/// Advance of the clock per reading.
const LOOK: Duration = Duration::from_micros(1);

/// Makes one attempt of a call; returns whether it is finished. The flag is true once its time-out has passed.
pub(crate) type Attempt = Box<dyn FnMut(&Sockets<Real>, bool) -> bool + Send>;

/// How long a call may wait.
pub(crate) enum Limit {
    /// For ever, or for no time at all.
    None,
    /// Milliseconds; negative: for ever.
    Milliseconds(i32),
    /// `SO_RCVTIMEO` of this descriptor.
    Receiving(i32),
    /// Its `SO_SNDTIMEO`.
    Sending(i32),
}

impl Limit {
    fn time(&self, sockets: &Sockets<Real>) -> Option<Duration> {
        match *self {
            Limit::None => None,
            Limit::Milliseconds(milliseconds) => u64::try_from(milliseconds).ok().map(Duration::from_millis),
            Limit::Receiving(fd) => sockets.timeout(fd, true),
            Limit::Sending(fd) => sockets.timeout(fd, false),
        }
    }
}

/// A blocked call.
struct Waiter {
    thread: ThreadId,
    attempt: Attempt,
    /// When its own time-out expires.
    deadline: Option<Time>,
}

pub(crate) struct Machine {
    sockets: Sockets<Real>,
    host: Host,
    waiters: Vec<Waiter>,
    /// End of the last call of each thread that has not read the clock since.
    stamps: HashMap<ThreadId, Time>,
}

impl Machine {
    pub(crate) fn new(flags: Flags) -> Result<Machine, String> {
        let host = Host::new(flags.terms).map_err(|error| error.to_string())?;
        let sockets = Sockets::new(host.stack.clone(), KernelNumbers::default());
        let (waiters, stamps) = (Vec::new(), HashMap::new());
        let mut machine = Machine { sockets, host, waiters, stamps };
        machine.step();
        Ok(machine)
    }

    pub(crate) fn set_knob(&mut self, name: &str, value: &str) -> Result<(), String> {
        self.host.stack.shared().control().set_knob(name, value).map_err(|error| error.to_string())
    }

    /// Runs everything that is due now.
    pub(crate) fn step(&mut self) {
        loop {
            self.host.settle();
            self.host.trace.clear();
            self.sockets.update_reports();
            let finished = self.retry_pending();
            // An attempt that still waits may have sent something, as `connect` does.
            if !self.host.settle() && !finished {
                return;
            }
        }
    }

    /// Attempts every blocked call; returns whether one has finished.
    fn retry_pending(&mut self) -> bool {
        let now = self.host.now();
        let (before, mut waiters) = (self.waiters.len(), std::mem::take(&mut self.waiters));
        waiters.retain_mut(|waiter| {
            let expired = waiter.deadline.is_some_and(|deadline| now >= deadline);
            let over = (waiter.attempt)(&self.sockets, expired);
            if over {
                self.stamps.insert(waiter.thread, now);
            }
            !over
        });
        self.waiters = waiters;
        self.waiters.len() < before
    }

    /// Moves the clock to the next deadline, not beyond `target`.
    fn advance(&mut self, target: Time) {
        let deadlines = self.waiters.iter().filter_map(|waiter| waiter.deadline);
        let next = deadlines.fold(self.host.next_deadline().min(target), Time::min);
        // A timer that expired with nothing due must not stop the clock.
        self.host.set_time(next.max(self.host.now() + LOOK));
        self.step();
    }

    /// Advances the clock by `span`.
    pub(crate) fn sleep(&mut self, span: Duration) {
        let target = self.host.now() + span;
        self.step();
        while self.host.now() < target {
            self.advance(target);
        }
    }

    /// The clock as read by `thread`, which advances it; after a blocked call, the end of that call.
    pub(crate) fn look(&mut self, thread: ThreadId) -> Time {
        if let Some(stamp) = self.stamps.remove(&thread) {
            return stamp;
        }
        self.sleep(LOOK);
        self.host.now()
    }

    /// `thread` waits until `attempt` is finished, within `limit` from now.
    pub(crate) fn wait(&mut self, thread: ThreadId, attempt: Attempt, limit: Limit) {
        let deadline = limit.time(&self.sockets).map(|time| self.host.now() + time);
        self.stamps.remove(&thread);
        self.waiters.push(Waiter { thread, attempt, deadline });
        self.step();
    }

    /// Moves the clock until `thread` no longer waits, for the longest wait at most.
    pub(crate) fn drive(&mut self, thread: ThreadId) {
        let latest = self.host.now() + LONGEST_WAIT;
        let waits = |machine: &Machine| machine.waiters.iter().any(|waiter| waiter.thread == thread);
        while waits(self) && self.host.now() < latest {
            self.advance(latest);
        }
        // It continues in this call: the clock has the right time for it.
        self.stamps.remove(&thread);
        self.waiters.retain(|waiter| waiter.thread != thread);
    }

    /// Injects an IP packet.
    pub(crate) fn inject(&mut self, packet: &[u8]) -> Result<(), String> {
        self.step();
        self.host.put_packet(packet)?;
        self.step();
        Ok(())
    }

    /// The next IP packet of the stack, and its time; `None` if there is none within the longest wait.
    pub(crate) fn next_packet(&mut self) -> Option<(Time, Vec<u8>)> {
        self.step();
        let latest = self.host.now() + LONGEST_WAIT;
        loop {
            if let Some(packet) = self.host.take_packet() {
                return Some(packet);
            }
            if self.host.now() >= latest {
                return None;
            }
            self.advance(latest);
        }
    }
}
