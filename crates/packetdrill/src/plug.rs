//! The lock around the machine, and how a call waits: the script's own thread by moving the clock, any other asleep on a
//! futex until the script's thread has made its attempt succeed.
//!
//! No file is opened or closed under the lock but by system call: the preloaded `close` may take it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread::{self, ThreadId};
use std::time::Duration;

use drill::posix::{Answer, Errno};
use observe::Time;

use crate::flags::Flags;
use crate::machine::{Machine, Sockets};
use crate::sysctls::Sysctls;

pub(crate) struct Plug {
    machine: Mutex<Machine>,
    /// A call that waited is over.
    over: Condvar,
    sysctls: Sysctls,
    /// The thread that runs the script.
    script: ThreadId,
}

/// The machine of the script that is running, for the preloaded symbols.
static CURRENT: Mutex<Option<Arc<Plug>>> = Mutex::new(None);

fn current() -> MutexGuard<'static, Option<Arc<Plug>>> {
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Plug {
    /// A machine as `flags` say; the calling thread runs the script.
    pub(crate) fn new(flags: &str) -> Result<Arc<Plug>, String> {
        let mut flags = Flags::read(flags)?;
        let sysctls = Sysctls::new(flags.sysctls.take());
        let machine = Mutex::new(Machine::new(flags)?);
        let plug = Arc::new(Plug { machine, over: Condvar::new(), sysctls, script: thread::current().id() });
        *current() = Some(plug.clone());
        Ok(plug)
    }

    pub(crate) fn current() -> Option<Arc<Plug>> {
        current().clone()
    }

    /// The script is over.
    pub(crate) fn forget(&self) {
        let mut current = current();
        if current.as_ref().is_some_and(|plug| std::ptr::eq(&**plug, self)) {
            *current = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Machine> {
        // A panic ends the process: it cannot cross into C.
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self, machine: &mut Machine) {
        if std::mem::take(&mut machine.finished) {
            self.over.notify_all();
        }
    }

    /// Does something with the machine.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Machine) -> R) -> R {
        let mut machine = self.lock();
        let result = work(&mut machine);
        self.notify(&mut machine);
        result
    }

    /// Sets the knobs whose files have changed.
    pub(crate) fn read_sysctls(&self) {
        let changes = self.sysctls.changes();
        if changes.is_empty() {
            return;
        }
        let wrong: Vec<String> = self
            .with(|machine| changes.iter().filter_map(|(name, value)| machine.set_knob(name, value).err()).collect());
        for error in wrong {
            eprintln!("heddle: sysctl left as it was: {error}");
        }
    }

    /// What the calling thread sees on the clock.
    pub(crate) fn look(&self) -> Time {
        let thread = thread::current().id();
        self.with(|machine| if thread == self.script { machine.look() } else { machine.glance(thread) })
    }

    /// A call that is over at once.
    pub(crate) fn now<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Sockets) -> Result<T, Errno> + Send + 'static,
    ) -> Result<T, Errno> {
        let mut call = Some(call);
        self.call(None, move |sockets, _| match call.take() {
            Some(call) => Poll::Ready(call(sockets)),
            None => Poll::Pending,
        })
    }

    /// A call that may have to wait, at most `timeout`. `attempt` is made until it answers; its flag says that the time-out
    /// has passed.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        timeout: Option<Duration>,
        mut attempt: impl FnMut(&mut Sockets, bool) -> Answer<T> + Send + 'static,
    ) -> Result<T, Errno> {
        self.read_sysctls();
        let thread = thread::current().id();
        let result = Arc::new(Mutex::new(None));
        let theirs = result.clone();
        let attempt = Box::new(move |sockets: &mut Sockets, expired: bool| match attempt(sockets, expired) {
            Poll::Ready(done) => {
                *slot(&theirs) = Some(done);
                true
            }
            Poll::Pending => false,
        });
        let mut machine = self.lock();
        machine.wait(thread, attempt, timeout);
        if thread == self.script {
            machine.drive(thread);
            self.notify(&mut machine);
            return slot(&result).take().unwrap_or(Err(Errno::ETIMEDOUT));
        }
        loop {
            if let Some(done) = slot(&result).take() {
                return done;
            }
            machine = self.over.wait(machine).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn slot<T>(result: &Mutex<T>) -> MutexGuard<'_, T> {
    result.lock().unwrap_or_else(PoisonError::into_inner)
}
