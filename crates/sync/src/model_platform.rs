//! Two macros with the common parts of the platforms of loom and shuttle: both checkers have the standard library's
//! threads, mutexes and condition variables, each under its own path.

/// Defines `SLEEPERS`: the sleepers of one execution. The mutex orders a sleep against a wake as the kernel's hash bucket lock
/// does.
macro_rules! sleepers {
    ($name:ident, $($lazy_static:tt)+) => {
        /// The address slept on and the sleeper's thread number, for each sleeper.
        #[derive(Default)]
        struct $name {
            asleep: Mutex<Vec<(usize, usize)>>,
            changed: Condvar,
        }

        $($lazy_static)+! {
            static ref SLEEPERS: $name = $name::default();
        }
    };
}

/// The items of [`Platform`](crate::Platform) that the two implement alike, with the names that the file has imported from its
/// checker, `SLEEPERS`, `HELD` and `IN_CALLBACK`. A sleep with a time-out times out at once: a permitted outcome, and the one that checks most.
macro_rules! model_platform {
    () => {
        const EXPLORED: bool = true;

        type AtomicU32 = AtomicU32;
        type AtomicU64 = AtomicU64;
        type AtomicUsize = AtomicUsize;
        type AtomicBool = AtomicBool;
        type JoinHandle = thread::JoinHandle<()>;
        type Doorbell = $crate::NoDoorbell<Self>;

        fn spawn(
            name: &str,
            _cpu: Option<usize>,
            _class: $crate::ThreadClass,
            body: impl FnOnce() + Send + 'static,
        ) -> Self::JoinHandle {
            match thread::Builder::new().name(name.to_owned()).spawn(body) {
                Ok(handle) => handle,
                Err(reason) => panic!("cannot start model thread `{name}`: {reason}"),
            }
        }

        fn join(handle: Self::JoinHandle) -> std::thread::Result<()> {
            handle.join()
        }

        fn futex_wait(atom: &AtomicU32, expected: u32, timeout: Option<std::time::Duration>) {
            let sleepers = &*SLEEPERS;
            let me = (std::ptr::from_ref(atom).addr(), Self::thread_index());
            let mut asleep = sleepers.asleep.lock().unwrap_or_else(|e| e.into_inner());
            if $crate::Atomic::load(atom, $crate::Ordering::SeqCst) != expected {
                return;
            }
            if timeout.is_some() {
                drop(asleep);
                return thread::yield_now();
            }
            asleep.push(me);
            while asleep.contains(&me) {
                asleep = sleepers.changed.wait(asleep).unwrap_or_else(|e| e.into_inner());
            }
        }

        fn futex_wake(atom: &AtomicU32, n: u32) {
            let sleepers = &*SLEEPERS;
            let address = std::ptr::from_ref(atom).addr();
            let mut asleep = sleepers.asleep.lock().unwrap_or_else(|e| e.into_inner());
            let mut left = n;
            asleep.retain(|&(at, _)| {
                let wake = at == address && left > 0;
                left -= u32::from(wake);
                !wake
            });
            if left < n {
                sleepers.changed.notify_all();
            }
        }

        fn relax(_spins: u32) {
            thread::yield_now();
        }

        fn yield_now() {
            thread::yield_now();
        }

        fn fence(order: $crate::Ordering) {
            fence(order);
        }

        fn in_callback() -> bool {
            IN_CALLBACK.try_with(std::cell::Cell::get).unwrap_or(false)
        }

        fn set_in_callback(inside: bool) -> bool {
            IN_CALLBACK.try_with(|now| now.replace(inside)).unwrap_or(false)
        }

        fn with_held(look: impl FnOnce(&$crate::lock_order::HeldLocks)) {
            let _ = HELD.try_with(look);
        }
    };
}

pub(crate) use {model_platform, sleepers};
