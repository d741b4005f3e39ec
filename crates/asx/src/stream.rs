//! [`Stream`]: a chain of modules over a bottom, used by an application at its top.
//!
//! Owned here: the lock around the [`Chain`], the threads, and how they wait. Every thread runs the same loop: it
//! claims work that its process architecture allows, runs it without the lock, and completes it; without work it
//! returns or sleeps, depending on [`Chain::has_more`]. Every step that may unblock another thread is followed by a
//! notification.
//!
//! What may never happen: a module or the bottom is called with the lock held; a thread that carries a message returns
//! while the message waits for it.

use std::sync::Arc;

use sync::{Condvar, Guard, Lock, LockClass, LockKind, Platform, Real, ThreadClass, model_is_over};

use crate::architecture::ProcessArchitecture;
use crate::bottom::Bottom;
use crate::chain::{Carrier, Chain, Claimant, Job, PlaceId};
use crate::error::{ChangeError, StreamError};
use crate::message::Message;
use crate::queue::{Module, Passed, Queue, Side, WaterMarks};

/// Modules over a bottom. Any number of threads may use it.
///
/// Dropping it closes the bottom and waits for the stream's threads; call [`flush`](Stream::flush) before, where that matters.
pub struct Stream<P: Platform = Real> {
    pub(crate) shared: Arc<StreamShared<P>>,
    threads: Lock<Vec<StreamThread<P>>, P>,
}

struct StreamThread<P: Platform> {
    /// The module that the thread belongs to, if any.
    place: Option<PlaceId>,
    handle: P::JoinHandle,
}

pub(crate) struct StreamShared<P: Platform> {
    pub(crate) chain: Lock<Chain, P>,
    pub(crate) changed: Condvar<P>,
    bottom: Arc<dyn Bottom>,
    pub(crate) architecture: ProcessArchitecture,
}

/// Why [`try_write`](Stream::try_write) has not written a message.
#[derive(Debug)]
pub enum TryWriteError {
    /// The first queue is full, or the modules are being changed. Contains the message.
    Full(Message),
    /// Nothing more can be written. The message is lost.
    Failed(StreamError),
}

/// The write side of the bottom, as a queue of the chain.
struct BottomSender(Arc<dyn Bottom>);

impl Queue for BottomSender {
    fn svc(&mut self, message: Message, _: &mut Passed) -> Result<(), String> {
        self.0.send(message).map_err(|error| error.to_string())
    }

    fn end(&mut self, _: &mut Passed) -> Result<(), String> {
        self.0.end().map_err(|error| error.to_string())
    }
}

impl Stream<Real> {
    /// A stream without modules, of the real platform. Its threads, if it has any, receive from now on.
    pub fn new(bottom: impl Bottom, architecture: ProcessArchitecture) -> Stream<Real> {
        Stream::over(bottom, architecture, Vec::new(), WaterMarks::default())
            .unwrap_or_else(|_| unreachable!("no name is used twice"))
    }
}

impl<P: Platform> Stream<P> {
    /// A stream with these modules, the topmost first. `marks` are those of the queues for the application and for the
    /// bottom.
    ///
    /// # Errors
    /// Two modules have the same name.
    pub fn over(
        bottom: impl Bottom,
        architecture: ProcessArchitecture,
        modules: Vec<Module>,
        marks: WaterMarks,
    ) -> Result<Stream<P>, ChangeError> {
        let bottom: Arc<dyn Bottom> = Arc::new(bottom);
        let mut chain = Chain::new(Box::new(BottomSender(bottom.clone())), marks);
        for module in modules.into_iter().rev() {
            if chain.named(module.name()).is_some() {
                return Err(ChangeError::NameInUse(module.name));
            }
            chain.push(module);
        }
        let places = chain.places();
        let shared = Arc::new(StreamShared {
            chain: Lock::new(LockKind::Blocking, LockClass::Handoff, chain),
            changed: Condvar::new(),
            bottom,
            architecture,
        });
        let threads = Lock::new(LockKind::Blocking, LockClass::Control, Vec::new());
        let stream = Stream { shared, threads };
        for number in 0..architecture.receivers() {
            let shared = stream.shared.clone();
            stream.spawn(None, &format!("asx-receive-{number}"), move || shared.receive_all());
        }
        if architecture.has_owners() {
            places.into_iter().for_each(|(place, name)| stream.spawn_owner(place, &name));
        }
        Ok(stream)
    }

    fn spawn(&self, place: Option<PlaceId>, name: &str, body: impl FnOnce() + Send + 'static) {
        let handle = P::spawn(name, None, ThreadClass::Protocol, body);
        self.threads.lock().push(StreamThread { place, handle });
    }

    /// The thread of a module under `layer`. It ends when the module leaves the stream.
    pub(crate) fn spawn_owner(&self, place: PlaceId, name: &str) {
        let shared = self.shared.clone();
        self.spawn(Some(place), &format!("asx-{name}"), move || {
            let carrier = shared.chain.lock().carrier();
            // The stream keeps an error: every caller that reads or writes gets it.
            _ = shared.carry(Claimant::Owner(place, carrier));
        });
    }

    /// Waits for the thread of a module that has left the stream: it has nothing more to run.
    pub(crate) fn join_owner(&self, place: PlaceId) {
        let mut threads = self.threads.lock();
        let at = threads.iter().position(|thread| thread.place == Some(place));
        let thread = at.map(|at| threads.swap_remove(at));
        drop(threads);
        // A panic of a module is in the stream's error.
        thread.into_iter().for_each(|thread| _ = P::join(thread.handle));
    }

    /// The process architecture.
    pub fn architecture(&self) -> ProcessArchitecture {
        self.shared.architecture
    }

    /// The names of the modules, the topmost first.
    pub fn modules(&self) -> Vec<String> {
        self.shared.chain.lock().names()
    }

    /// Waits for the next message that has come up through all modules. `None`: the end.
    ///
    /// # Errors
    /// The stream has failed. Messages that had arrived before are returned first.
    pub fn read(&self) -> Result<Option<Message>, StreamError> {
        let shared = &*self.shared;
        let mut chain = shared.chain.lock();
        loop {
            if let Some(next) = chain.take_top() {
                drop(chain);
                shared.changed.notify_all();
                return Ok(next);
            }
            if let Some(reason) = &chain.failure {
                return Err(reason.clone());
            }
            if let Some(job) = shared.moved(Side::Read).and_then(|claimant| chain.claim(claimant)) {
                chain = shared.run(chain, job);
                continue;
            }
            if shared.architecture.reader_receives() && shared.may_receive(&chain) {
                (chain, _) = shared.receive(chain, 0);
                continue;
            }
            chain = shared.changed.wait(chain);
        }
    }

    /// Writes a message. Waits while the topmost queue is full. Then, except under `layer`, the calling thread takes it
    /// down to the bottom, and waits until the bottom has sent it, unless another thread takes over: one that writes
    /// under `caller`, or changes the stream. [`flush`](Stream::flush) waits in each case.
    ///
    /// # Errors
    /// The stream has failed, or its write side was ended.
    pub fn write(&self, message: impl Into<Message>) -> Result<(), StreamError> {
        self.shared.enter(Some(message.into()))
    }

    /// Writes a message if the topmost queue takes it now; then waits as [`write`](Stream::write) does.
    ///
    /// # Errors
    /// It does not, or the stream has failed.
    pub fn try_write(&self, message: impl Into<Message>) -> Result<(), TryWriteError> {
        let shared = &*self.shared;
        let message = message.into();
        let mut chain = shared.chain.lock();
        if let Err(reason) = may_write(&chain) {
            return Err(TryWriteError::Failed(reason));
        }
        if !chain.has_room(Side::Write) {
            return Err(TryWriteError::Full(message));
        }
        let carrier = chain.carrier();
        chain.enter(Side::Write, Some(message), carrier);
        drop(chain);
        shared.brought(Side::Write, carrier).map_err(TryWriteError::Failed)
    }

    /// Ends the write side: modules and bottom are notified after they have processed the messages written before.
    ///
    /// # Errors
    /// The stream has failed, or its write side was ended before.
    pub fn end(&self) -> Result<(), StreamError> {
        self.shared.enter(None)
    }

    /// Waits until the bottom has sent all messages written before, except those that a module keeps.
    ///
    /// # Errors
    /// The stream has failed.
    pub fn flush(&self) -> Result<(), StreamError> {
        let shared = &*self.shared;
        let mut chain = shared.chain.lock();
        loop {
            if let Some(reason) = &chain.failure {
                return Err(reason.clone());
            }
            if chain.has_sent_all() {
                return Ok(());
            }
            chain = match shared.moved(Side::Write).and_then(|claimant| chain.claim(claimant)) {
                Some(job) => shared.run(chain, job),
                None => shared.changed.wait(chain),
            };
        }
    }

    /// Closes the stream: unsent messages are dropped, and every waiting and every later call returns
    /// [`StreamError::Closed`].
    pub fn close(&self) {
        self.shared.chain.lock().fail(StreamError::Closed);
        self.shared.changed.notify_all();
        self.shared.bottom.close();
    }
}

impl<P: Platform> Drop for Stream<P> {
    fn drop(&mut self) {
        if model_is_over::<P>() {
            return;
        }
        self.close();
        let threads = std::mem::take(&mut *self.threads.lock());
        // A panic of a module is in the stream's error.
        threads.into_iter().for_each(|thread| _ = P::join(thread.handle));
    }
}

impl<P: Platform> std::fmt::Debug for Stream<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let architecture = self.architecture().to_string();
        f.debug_struct("Stream").field("architecture", &architecture).field("modules", &self.modules()).finish()
    }
}

fn may_write(chain: &Chain) -> Result<(), StreamError> {
    match &chain.failure {
        Some(reason) => Err(reason.clone()),
        None if chain.written_all => Err(StreamError::Ended),
        None => Ok(()),
    }
}

impl<P: Platform> StreamShared<P> {
    /// A message from the application, or the end.
    fn enter(&self, message: Option<Message>) -> Result<(), StreamError> {
        let mut chain = self.chain.lock();
        loop {
            may_write(&chain)?;
            if chain.has_room(Side::Write) {
                break;
            }
            chain = match self.moved(Side::Write).and_then(|claimant| chain.claim(claimant)) {
                Some(job) => self.run(chain, job),
                None => self.changed.wait(chain),
            };
        }
        chain.written_all = message.is_none();
        let carrier = chain.carrier();
        chain.enter(Side::Write, message, carrier);
        drop(chain);
        self.brought(Side::Write, carrier)
    }

    /// Carries the entered message towards its destination.
    fn brought(&self, side: Side, carrier: Carrier) -> Result<(), StreamError> {
        self.changed.notify_all();
        self.carry(self.architecture.carries(side, carrier))
    }

    /// The work that a thread of the application may run besides its own messages: all work if there are no other
    /// threads, otherwise only messages that a change of the stream has left without a carrier.
    pub(crate) fn moved(&self, side: Side) -> Option<Claimant> {
        let no_one = 0;
        (!self.architecture.has_owners()).then(|| self.architecture.carries(side, no_one))
    }

    /// Runs all work that `claimant` may run, and waits for more as long as more may follow.
    pub(crate) fn carry(&self, claimant: Claimant) -> Result<(), StreamError> {
        let mut chain = self.chain.lock();
        loop {
            if let Some(job) = chain.claim(claimant) {
                chain = self.run(chain, job);
                continue;
            }
            if let Some(reason) = &chain.failure {
                return Err(reason.clone());
            }
            if !chain.has_more(claimant) {
                return Ok(());
            }
            chain = self.changed.wait(chain);
        }
    }

    /// Calls a module or the bottom, without the lock. If it panics, the stream fails.
    pub(crate) fn guarded<R>(&self, name: &str, call: impl FnOnce() -> R) -> R {
        let in_use = InUse { shared: self, name };
        let result = call();
        std::mem::forget(in_use);
        result
    }

    /// Runs a queue without the lock.
    pub(crate) fn run<'a>(&'a self, chain: Guard<'a, Chain, P>, mut job: Job) -> Guard<'a, Chain, P> {
        drop(chain);
        // A claim makes room.
        self.changed.notify_all();
        self.guarded(&job.name.clone(), || job.run());
        let mut chain = self.chain.lock();
        chain.complete::<P>(job);
        self.changed.notify_all();
        chain
    }

    fn may_receive(&self, chain: &Chain) -> bool {
        !chain.receiving && !chain.received_all && chain.has_room(Side::Read)
    }

    /// Takes a message from the bottom, without the lock.
    fn receive<'a>(&'a self, mut chain: Guard<'a, Chain, P>, carrier: Carrier) -> (Guard<'a, Chain, P>, bool) {
        chain.receiving = true;
        drop(chain);
        let received = self.guarded("bottom", || self.bottom.receive());
        let mut chain = self.chain.lock();
        chain.receiving = false;
        match received {
            Ok(message) => {
                chain.received_all = message.is_none();
                chain.enter(Side::Read, message, carrier);
            }
            Err(error) => chain.fail(StreamError::Bottom(error.to_string())),
        }
        self.changed.notify_all();
        let more = !chain.received_all;
        (chain, more)
    }

    /// The loop of a receiving thread: it takes its turn at the bottom, and carries the message that it has received.
    fn receive_all(&self) {
        let mut more = true;
        while more {
            let mut chain = self.chain.lock();
            while chain.failure.is_none() && !chain.received_all && !self.may_receive(&chain) {
                chain = self.changed.wait(chain);
            }
            if chain.failure.is_some() || chain.received_all {
                return;
            }
            let carrier = chain.carrier();
            (chain, more) = self.receive(chain, carrier);
            drop(chain);
            if self.carry(self.architecture.carries(Side::Read, carrier)).is_err() {
                return;
            }
        }
    }
}

/// A module or the bottom is being called. Dropped in a panic it ends the stream, because the called queue or bottom is
/// lost.
struct InUse<'a, P: Platform> {
    shared: &'a StreamShared<P>,
    name: &'a str,
}

impl<P: Platform> Drop for InUse<'_, P> {
    fn drop(&mut self) {
        if model_is_over::<P>() {
            return;
        }
        self.shared.chain.lock().fail(StreamError::Panicked(self.name.to_owned()));
        self.shared.changed.notify_all();
    }
}
