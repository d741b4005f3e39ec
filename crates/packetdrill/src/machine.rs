//! The machine: the stack, its sockets, its clock, and the calls that wait.
//!
//! Time moves in `usleep`, in `netdev_receive`, by a microsecond in every `gettimeofday` (packetdrill spins on it), and
//! while the script's own thread waits in a call. After every move everything happens that happens at that moment, the
//! next attempts of calls that wait included, so that what they do to the stack has its exact time whenever their
//! thread wakes. That time is also what the thread's first `gettimeofday` afterwards tells: packetdrill takes it for
//! the end of the call.

use std::collections::HashMap;
use std::thread::ThreadId;
use std::time::Duration;

use drill::host::Host;
use observe::Time;
use posix::Sockets;
use sync::Real;

use crate::flags::Flags;
use crate::numbers::KernelNumbers;

/// How long in virtual time a packet is waited for, and a call of the script's own thread: packetdrill has no limit
/// here.
const LONGEST_WAIT: Duration = Duration::from_secs(200);
/// What one look at the clock takes.
const LOOK: Duration = Duration::from_micros(1);

/// Makes one attempt of a call; whether it is over. The flag says that its time-out has passed.
pub(crate) type Attempt = Box<dyn FnMut(&Sockets<Real>, bool) -> bool + Send>;

/// How long a call waits.
pub(crate) enum Limit {
    /// For ever, or for no time at all.
    None,
    /// For so long; negative milliseconds: for ever.
    Milliseconds(i32),
    /// As `SO_RCVTIMEO` of this descriptor says.
    Receiving(i32),
    /// As its `SO_SNDTIMEO` says.
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

/// A call that waits.
struct Waiter {
    thread: ThreadId,
    attempt: Attempt,
    /// When its own time-out passes.
    deadline: Option<Time>,
}

pub(crate) struct Machine {
    sockets: Sockets<Real>,
    host: Host,
    waiters: Vec<Waiter>,
    /// When the call of a thread was over that has not looked at the clock since.
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

    /// Lets everything happen that happens now.
    pub(crate) fn step(&mut self) {
        loop {
            self.host.settle();
            self.host.trace.clear();
            self.sockets.update_reports();
            let finished = self.poke();
            // An attempt that goes on waiting may have sent something all the same, as a `connect` does.
            if !self.host.settle() && !finished {
                return;
            }
        }
    }

    /// Asks every call that waits; whether one is over.
    fn poke(&mut self) -> bool {
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

    /// Moves the clock to the next moment at which something may happen, not beyond `target`.
    fn advance(&mut self, target: Time) {
        let deadlines = self.waiters.iter().filter_map(|waiter| waiter.deadline);
        let next = deadlines.fold(self.host.next_deadline().min(target), Time::min);
        // A timer that has come and found nothing due must not stop the clock.
        self.host.set_time(next.max(self.host.now() + LOOK));
        self.step();
    }

    /// Lets `span` pass.
    pub(crate) fn sleep(&mut self, span: Duration) {
        let target = self.host.now() + span;
        self.step();
        while self.host.now() < target {
            self.advance(target);
        }
    }

    /// What `thread` sees on the clock, which goes on; after a call that waited, when that was over.
    pub(crate) fn look(&mut self, thread: ThreadId) -> Time {
        if let Some(stamp) = self.stamps.remove(&thread) {
            return stamp;
        }
        self.sleep(LOOK);
        self.host.now()
    }

    /// `thread` waits until `attempt` says that it is over, within `limit` from now.
    pub(crate) fn wait(&mut self, thread: ThreadId, attempt: Attempt, limit: Limit) {
        let deadline = limit.time(&self.sockets).map(|time| self.host.now() + time);
        self.stamps.remove(&thread);
        self.waiters.push(Waiter { thread, attempt, deadline });
        self.step();
    }

    /// Moves the clock until `thread` waits no more, or for as long as anything is waited for.
    pub(crate) fn drive(&mut self, thread: ThreadId) {
        let latest = self.host.now() + LONGEST_WAIT;
        let waits = |machine: &Machine| machine.waiters.iter().any(|waiter| waiter.thread == thread);
        while waits(self) && self.host.now() < latest {
            self.advance(latest);
        }
        // It goes on in this call: the clock is at the right time for it.
        self.stamps.remove(&thread);
        self.waiters.retain(|waiter| waiter.thread != thread);
    }

    /// An IP packet comes.
    pub(crate) fn inject(&mut self, packet: &[u8]) -> Result<(), String> {
        self.step();
        self.host.put_packet(packet)?;
        self.step();
        Ok(())
    }

    /// The next IP packet that goes out, and when; `None` when none has come in all the time that is waited.
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
