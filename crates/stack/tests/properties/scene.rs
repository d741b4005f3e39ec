//! The state of every thread of a running test: whether it sleeps, which locks it holds then, which frames it has given
//! to the device, and whether it has ended.
//!
//! [`Observed`] is the real platform, which reports to the scene of the test. Each thread that the stack or the test
//! starts joins its parent's scene under its own name. So a test can wait until a thread sleeps, and see which locks
//! others would wait for meanwhile. No sleep of an observed thread ends by itself: a lost wake-up leaves its thread
//! asleep, and [`Scene::until`] reports that.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sync::{LockClass, Ordering, Platform, Real, ThreadClass, walk};
use testbed::limit::HANG;
use testbed::panicking;

/// The thread that runs the test, which is also the receive thread of its stack.
pub const TEST: &str = "test";
/// The step that a thread's walk shows when it wakes a sleeper.
pub const WAKES: &str = "wakes a thread that sleeps";

thread_local! {
    static HERE: RefCell<Option<(Arc<Scene>, String)>> = const { RefCell::new(None) };
}

/// A frame with data or flags of TCP that was given to the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The peer's port.
    pub to: u16,
    /// Bytes of payload.
    pub len: usize,
    /// The name of the thread that gave it to the device.
    pub by: String,
    /// The locks that this thread held, outermost first, without the device's own.
    pub held: Vec<LockClass>,
    /// An address on the stack on which that thread was.
    pub stack: usize,
}

/// The recorded state.
#[derive(Default)]
pub struct State {
    /// Threads that sleep or wait for a lock, with the locks that they hold. A thread leaves when it is woken, not only
    /// when it runs again.
    pub asleep: BTreeMap<String, Vec<LockClass>>,
    /// The addresses of the words at which they sleep.
    sleeps_at: BTreeMap<String, usize>,
    /// The longest time for which each of them wanted to sleep; `None`: until it is woken.
    pub bounds: BTreeMap<String, Option<Duration>>,
    /// The threads that the architecture has of its own.
    own: BTreeSet<String>,
    /// The CPUs of threads that were started for one.
    pub pinned: BTreeMap<String, usize>,
    /// Threads that have ended.
    pub done: BTreeSet<String>,
    /// Threads that are stopped in the device.
    pub stopped: BTreeSet<String>,
    /// Frames given to the device, oldest first.
    pub sent: Vec<Sent>,
    /// The device has frames of which it has not been notified.
    pub unflushed: bool,
    /// Segments to these ports stop in the device.
    closed: BTreeSet<u16>,
    /// The device panics when it is next notified of frames.
    panics: bool,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "asleep with these locks: {:?}; stopped in the device: {:?}; ended: {:?}; sent: {:?}",
            self.asleep, self.stopped, self.done, self.sent
        )
    }
}

impl State {
    /// Whether this thread sleeps and holds just these locks.
    pub fn sleeps(&self, thread: &str, held: &[LockClass]) -> bool {
        self.asleep.get(thread).is_some_and(|classes| classes == held)
    }

    /// Whether all threads that the architecture has of its own sleep. One that looks for work once more, or has not
    /// begun, would for a moment use a cell that has no work.
    pub fn own_threads_sleep(&self) -> bool {
        self.own.iter().all(|thread| self.sleeps(thread, &[]) || self.done.contains(thread))
    }

    /// Whether all threads that the architecture has of its own have ended.
    pub fn own_threads_have_ended(&self) -> bool {
        self.own.is_subset(&self.done)
    }

    fn falls_asleep(&mut self, thread: &str, word: usize, held: Vec<LockClass>, bound: Option<Duration>) {
        self.asleep.insert(thread.to_owned(), held);
        self.bounds.insert(thread.to_owned(), bound);
        self.sleeps_at.insert(thread.to_owned(), word);
    }

    fn gets_up(&mut self, thread: &str) {
        self.asleep.remove(thread);
        self.sleeps_at.remove(thread);
        self.bounds.remove(thread);
    }

    /// A wake-up at this address. Of several sleepers there, it is not known which one wakes.
    fn wakes(&mut self, word: usize) {
        let mut there = self.sleeps_at.iter().filter(|(_, at)| **at == word).map(|(thread, _)| thread.clone());
        if let (Some(only), None) = (there.next(), there.next()) {
            self.gets_up(&only);
        }
    }

    /// Names of the threads that sent segments to `port`, in order.
    pub fn senders(&self, port: u16) -> Vec<&str> {
        self.sent.iter().filter(|sent| sent.to == port).map(|sent| sent.by.as_str()).collect()
    }
}

/// See the head of this file.
#[derive(Default)]
pub struct Scene {
    state: Mutex<State>,
    changed: Condvar,
}

impl Scene {
    /// A scene that the calling thread, which runs the test, has joined.
    pub fn new() -> Arc<Scene> {
        let scene = Arc::new(Scene::default());
        HERE.set(Some((scene.clone(), TEST.to_owned())));
        scene
    }

    /// The current state.
    pub fn state(&self) -> MutexGuard<'_, State> {
        // A test that panics with the lock held leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    /// Waits until `what` holds.
    ///
    /// # Panics
    /// With the recorded state, if nothing changes for [`HANG`].
    pub fn until(&self, what: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let mut state = self.state();
        while !what(&state) {
            let (next, time) = self.changed.wait_timeout(state, HANG).unwrap_or_else(PoisonError::into_inner);
            state = next;
            assert!(!time.timed_out() || what(&state), "nothing happens any more: {:?}", *state);
        }
        state
    }

    /// From now on a thread that sends to `port` stops in the device, with all the locks that it holds.
    pub fn close(&self, port: u16) {
        self.change(|state| _ = state.closed.insert(port));
    }

    /// The device panics when it is next notified of frames.
    pub fn panic_at_flush(&self) {
        panicking::mute();
        self.change(|state| state.panics = true);
    }

    /// Threads that are stopped in the device continue.
    pub fn open(&self) {
        self.change(|state| state.closed.clear());
    }

    /// A thread that is stopped because it sends to `port` continues.
    pub fn open_port(&self, port: u16) {
        self.change(|state| _ = state.closed.remove(&port));
    }

    /// A guard that opens the device again when it is dropped, also when a test fails: a thread that is stopped there
    /// would never end.
    pub fn opens(self: &Arc<Self>) -> Opens {
        Opens(self.clone())
    }

    /// Starts a thread that runs `body`.
    pub fn spawn(self: &Arc<Self>, name: &str, body: impl FnOnce() + Send + 'static) -> Thread {
        Thread {
            handle: Observed::spawn(name, None, ThreadClass::Application, body),
            scene: self.clone(),
            name: name.to_owned(),
        }
    }
}

/// See [`Scene::opens`].
pub struct Opens(Arc<Scene>);

impl Drop for Opens {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// A thread of a test, which must not panic.
pub struct Thread {
    handle: <Real as Platform>::JoinHandle,
    scene: Arc<Scene>,
    name: String,
}

impl Thread {
    /// Waits for its end.
    ///
    /// # Panics
    /// If it has panicked, or does not end.
    pub fn join(self) {
        drop(self.scene.until(|state| state.done.contains(&self.name)));
        self.handle.join().expect("the thread ends well");
    }
}

/// Reports that its thread has ended, also on panic.
struct Ends;

impl Drop for Ends {
    fn drop(&mut self) {
        report(|state, name| state.done.extend([name.to_owned()]));
    }
}

fn report(change: impl FnOnce(&mut State, &str)) {
    let here = HERE.try_with(|here| here.borrow().clone()).ok().flatten();
    if let Some((scene, name)) = here {
        scene.change(|state| change(state, &name));
    }
}

fn held() -> Vec<LockClass> {
    let mut classes = Vec::new();
    Real::with_held(|held| classes = held.classes());
    classes
}

/// An address on the stack on which the calling thread is.
#[inline(never)]
pub fn on_this_stack() -> usize {
    let here = std::hint::black_box(0u8);
    std::ptr::from_ref(&here).addr()
}

/// The calling thread gives a segment to the device, and stops there while the port is closed.
pub fn send(to: u16, len: usize) {
    let held: Vec<_> = held().into_iter().filter(|class| *class != LockClass::DeviceTx).collect();
    let stack = on_this_stack();
    report(|state, by| {
        state.unflushed = true;
        state.sent.push(Sent { to, len, by: by.to_owned(), held, stack });
    });
    let Some((scene, name)) = HERE.with(|here| here.borrow().clone()) else { return };
    if scene.state().closed.contains(&to) {
        scene.change(|state| state.stopped.extend([name.clone()]));
        drop(scene.until(|state| !state.closed.contains(&to)));
        scene.change(|state| state.stopped.retain(|stopped| *stopped != name));
    }
}

/// The calling thread notifies the device that its queue has frames.
pub fn flush() {
    let mut panics = false;
    report(|state, _| {
        state.unflushed = false;
        panics = std::mem::take(&mut state.panics);
    });
    if panics {
        panic!("planted");
    }
}

/// The real platform under observation: see the head of this file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Observed;

impl Platform for Observed {
    sync::forward_platform!(Real: atomics cells doorbell join spin now random thread fences held);

    fn spawn(
        name: &str,
        cpu: Option<usize>,
        class: ThreadClass,
        body: impl FnOnce() + Send + 'static,
    ) -> Self::JoinHandle {
        let (scene, name) = (HERE.with(|here| here.borrow().clone()), name.to_owned());
        let inside = scene.map(|(scene, _)| (scene, name.clone()));
        if let (Some((scene, _)), false) = (&inside, matches!(class, ThreadClass::Application)) {
            scene.change(|state| {
                state.own.extend([name.clone()]);
                state.pinned.extend(cpu.map(|cpu| (name.clone(), cpu)));
            });
        }
        Real::spawn(&name, None, class, move || {
            HERE.set(inside);
            let _ends = Ends;
            body();
        })
    }
    fn futex_wait(atom: &Self::AtomicU32, expected: u32, timeout: Option<Duration>) {
        // Compared under the scene's lock, which a waker takes after it has changed the word: a thread that is asleep
        // here has not been woken.
        report(|state, name| {
            if atom.load(Ordering::SeqCst) == expected {
                state.falls_asleep(name, std::ptr::from_ref(atom).addr(), held(), timeout);
            }
        });
        Real::futex_wait(atom, expected, None);
        report(State::gets_up);
    }
    fn futex_wake(atom: &Self::AtomicU32, n: u32) {
        walk::note(file!(), WAKES);
        report(|state, _| state.wakes(std::ptr::from_ref(atom).addr()));
        Real::futex_wake(atom, n);
    }
}
