//! The machine's thread, and how a call waits.
//!
//! One dedicated thread operates the machine: under some process architectures the stack belongs to a thread, and
//! packetdrill moves the clock from both of its threads. A caller sleeps until it gets the reply. A call of the
//! script's own thread that blocks moves the clock; any other sleeps until its attempt has succeeded.
//!
//! The machine's thread opens and closes files by system call only: the preloaded `close` would send a request to this
//! same thread, and deadlock.

use std::process;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread::{self, ThreadId};

use observe::Time;
use posix::{CallProgress, Errno, Sockets};
use sync::Real;

use crate::flags::Flags;
use crate::machine::{Limit, Machine};
use crate::sysctls::Sysctls;

/// A request to the machine.
type Work = Box<dyn FnOnce(&mut Machine) + Send>;

pub(crate) struct MachineHandle {
    work: Sender<Work>,
    sysctls: Sysctls,
    /// The thread that runs the script.
    script: ThreadId,
}

/// The machine of the script that is running, for the preloaded symbols.
static CURRENT: Mutex<Option<Arc<MachineHandle>>> = Mutex::new(None);

fn current() -> MutexGuard<'static, Option<Arc<MachineHandle>>> {
    // No thread can leave it in an inconsistent state.
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MachineHandle {
    /// A machine configured by `flags`; the calling thread runs the script.
    pub(crate) fn new(flags: &str) -> Result<Arc<MachineHandle>, String> {
        let mut flags = Flags::read(flags)?;
        let sysctls = Sysctls::new(flags.sysctls.take());
        let (work, orders) = mpsc::channel::<Work>();
        let (tx, rx) = mpsc::channel();
        let serve = move || match Machine::new(flags) {
            Ok(mut machine) => {
                // The creator of the thread waits for this.
                let _ = tx.send(Ok(()));
                orders.iter().for_each(|work| work(&mut machine));
            }
            Err(error) => drop(tx.send(Err(error))),
        };
        thread::Builder::new().name("machine".into()).spawn(serve).map_err(|error| error.to_string())?;
        rx.recv().unwrap_or_else(|_| gone())?;
        let plug = Arc::new(MachineHandle { work, sysctls, script: thread::current().id() });
        *current() = Some(plug.clone());
        Ok(plug)
    }

    pub(crate) fn current() -> Option<Arc<MachineHandle>> {
        current().clone()
    }

    /// The script is over.
    pub(crate) fn forget(&self) {
        let mut current = current();
        if current.as_ref().is_some_and(|plug| std::ptr::eq(&**plug, self)) {
            *current = None;
        }
    }

    /// Sends a request to the machine, which reports its own completion.
    fn order(&self, work: impl FnOnce(&mut Machine) + Send + 'static) {
        if self.work.send(Box::new(work)).is_err() {
            gone()
        }
    }

    /// Runs `work` on the machine and returns its result.
    pub(crate) fn with<R: Send + 'static>(&self, work: impl FnOnce(&mut Machine) -> R + Send + 'static) -> R {
        let (tx, rx) = mpsc::channel();
        // The caller waits for the reply.
        self.order(move |machine| drop(tx.send(work(machine))));
        rx.recv().unwrap_or_else(|_| gone())
    }

    /// Sets the knobs whose files have changed, before the next request.
    pub(crate) fn read_sysctls(&self) {
        let changes = self.sysctls.changes();
        if changes.is_empty() {
            return;
        }
        self.order(move |machine| {
            for (name, value) in changes {
                if let Err(error) = machine.set_knob(name, &value) {
                    eprintln!("heddle: sysctl left as it was: {error}");
                }
            }
        });
    }

    /// The clock as read by the calling thread.
    pub(crate) fn look(&self) -> Time {
        let thread = thread::current().id();
        self.with(move |machine| machine.look(thread))
    }

    /// A call that never blocks.
    pub(crate) fn now<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Sockets<Real>) -> Result<T, Errno> + Send + 'static,
    ) -> Result<T, Errno> {
        let mut call = Some(call);
        self.call(Limit::None, move |sockets, _| match call.take() {
            Some(call) => Poll::Ready(call(sockets)),
            None => Poll::Pending,
        })
    }

    /// A call that may block, as one request: once the calling thread sleeps, the call has begun, and later requests
    /// come after it. It waits within `limit`. `attempt` is repeated until it returns a result; its flag is true once
    /// the time is over.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        limit: Limit,
        mut attempt: impl FnMut(&Sockets<Real>, bool) -> CallProgress<T> + Send + 'static,
    ) -> Result<T, Errno> {
        self.read_sysctls();
        let thread = thread::current().id();
        let drives = thread == self.script;
        let (tx, rx) = mpsc::channel();
        let attempt = Box::new(move |sockets: &Sockets<Real>, expired: bool| match attempt(sockets, expired) {
            // The caller waits until it is finished.
            Poll::Ready(done) => tx.send(done).is_ok(),
            Poll::Pending => false,
        });
        self.order(move |machine| {
            machine.wait(thread, attempt, limit);
            if drives {
                machine.drive(thread);
            }
        });
        // When the call is given up, the attempt is dropped, and its sender with it.
        rx.recv().unwrap_or(Err(Errno::ETIMEDOUT))
    }
}

/// The machine's thread has panicked and printed the reason. A panic must not cross into C.
fn gone() -> ! {
    eprintln!("heddle: the machine is gone");
    process::abort()
}
