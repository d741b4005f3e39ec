//! The thread that has the machine, and how a call waits.
//!
//! Everything is done to the machine by one thread of its own: there are process architectures where the stack belongs
//! to a thread, and packetdrill moves the clock from both of its threads. Who asks sleeps until it is answered. A call
//! of the script's own thread that blocks moves the clock; any other sleeps until the machine has made its attempt
//! succeed.
//!
//! The machine's thread opens and closes files by system call only: the preloaded `close` would ask it, and wait for
//! ever.

use std::process;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread::{self, ThreadId};

use observe::Time;
use posix::{Answer, Errno, Sockets};
use sync::Real;

use crate::flags::Flags;
use crate::machine::{Limit, Machine};
use crate::sysctls::Sysctls;

/// Something to be done to the machine.
type Work = Box<dyn FnOnce(&mut Machine) + Send>;

pub(crate) struct Plug {
    work: Sender<Work>,
    sysctls: Sysctls,
    /// The thread that runs the script.
    script: ThreadId,
}

/// The machine of the script that is running, for the preloaded symbols.
static CURRENT: Mutex<Option<Arc<Plug>>> = Mutex::new(None);

fn current() -> MutexGuard<'static, Option<Arc<Plug>>> {
    // Nobody can leave it half changed.
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Plug {
    /// A machine as `flags` say; the calling thread runs the script.
    pub(crate) fn new(flags: &str) -> Result<Arc<Plug>, String> {
        let mut flags = Flags::read(flags)?;
        let sysctls = Sysctls::new(flags.sysctls.take());
        let (work, orders) = mpsc::channel::<Work>();
        let (say, hear) = mpsc::channel();
        let serve = move || match Machine::new(flags) {
            Ok(mut machine) => {
                // Whoever made the thread listens until this is said.
                let _ = say.send(Ok(()));
                orders.iter().for_each(|work| work(&mut machine));
            }
            Err(error) => drop(say.send(Err(error))),
        };
        thread::Builder::new().name("machine".into()).spawn(serve).map_err(|error| error.to_string())?;
        hear.recv().unwrap_or_else(|_| gone())?;
        let plug = Arc::new(Plug { work, sysctls, script: thread::current().id() });
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

    /// Has something done to the machine that says by itself when it is over.
    fn order(&self, work: impl FnOnce(&mut Machine) + Send + 'static) {
        if self.work.send(Box::new(work)).is_err() {
            gone()
        }
    }

    /// Does something with the machine.
    pub(crate) fn with<R: Send + 'static>(&self, work: impl FnOnce(&mut Machine) -> R + Send + 'static) -> R {
        let (say, hear) = mpsc::channel();
        // Who asked listens until the answer is there.
        self.order(move |machine| drop(say.send(work(machine))));
        hear.recv().unwrap_or_else(|_| gone())
    }

    /// Sets the knobs whose files have changed, before whatever is asked for next.
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

    /// What the calling thread sees on the clock.
    pub(crate) fn look(&self) -> Time {
        let thread = thread::current().id();
        self.with(move |machine| machine.look(thread))
    }

    /// A call that is over at once.
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

    /// A call that may have to wait, as one order: a thread that sees the calling one asleep may count on it that the
    /// call has begun, and that what is asked for then comes after it. It waits within `limit`. `attempt` is made until
    /// it answers; its flag says that the time is over.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        limit: Limit,
        mut attempt: impl FnMut(&Sockets<Real>, bool) -> Answer<T> + Send + 'static,
    ) -> Result<T, Errno> {
        self.read_sysctls();
        let thread = thread::current().id();
        let drives = thread == self.script;
        let (say, hear) = mpsc::channel();
        let attempt = Box::new(move |sockets: &Sockets<Real>, expired: bool| match attempt(sockets, expired) {
            // Who made the call listens until it is over.
            Poll::Ready(done) => say.send(done).is_ok(),
            Poll::Pending => false,
        });
        self.order(move |machine| {
            machine.wait(thread, attempt, limit);
            if drives {
                machine.drive(thread);
            }
        });
        // Given up, the attempt is dropped, and with it the sender.
        hear.recv().unwrap_or(Err(Errno::ETIMEDOUT))
    }
}

/// The machine's thread has panicked and has said why. That cannot cross into C.
fn gone() -> ! {
    eprintln!("heddle: the machine is gone");
    process::abort()
}
