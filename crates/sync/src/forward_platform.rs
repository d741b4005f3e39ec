//! One macro for platforms that differ from another in a few functions, as those of tests do.

/// Forwards items of [`Platform`](crate::Platform) to another platform, inside an implementation of the trait.
/// Differing items are written beside it.
///
/// | word | forwards |
/// |---|---|
/// | `atomics` | the types of atomic words |
/// | `cells` | `Cell`, `EXPLORED`, `TURNS_BEFORE_SLEEP` |
/// | `doorbell` | `Doorbell` |
/// | `futex` | `futex_wait`, `futex_wake`; needs the other platform's `AtomicU32` |
/// | `spawn`; `join` | `spawn`; `JoinHandle` and `join` |
/// | `spin` | `relax`, `yield_now` |
/// | `now`; `random` | `now`; `random` |
/// | `thread` | `thread_index`, `known_thread_index`, `thread_name`, `in_callback`, `set_in_callback` |
/// | `priority`; `runs` | `lend` and `repay`; `runs` |
/// | `fences` | `fence`, `light_fence`, `heavy_fence` |
/// | `profile`; `held` | `lock_counters`; `with_held` |
///
/// ```
/// use sync::{Platform, Real};
///
/// /// The real machine with a clock that stands still.
/// #[derive(Clone, Copy, Debug, Default)]
/// struct Timeless;
///
/// impl Platform for Timeless {
///     sync::forward_platform!(Real: atomics futex cells doorbell join spawn spin random thread fences profile held);
///
///     fn now() -> u64 {
///         0
///     }
/// }
/// # assert_eq!((Timeless::now(), Timeless::thread_index()), (0, Real::thread_index()));
/// ```
#[macro_export]
macro_rules! forward_platform {
    ($below:ty: $($what:ident)*) => { $($crate::forward_platform!(@$what $below);)* };
    (@atomics $below:ty) => {
        type AtomicU32 = <$below as $crate::Platform>::AtomicU32;
        type AtomicU64 = <$below as $crate::Platform>::AtomicU64;
        type AtomicUsize = <$below as $crate::Platform>::AtomicUsize;
        type AtomicBool = <$below as $crate::Platform>::AtomicBool;
    };
    (@futex $below:ty) => {
        fn futex_wait(atom: &Self::AtomicU32, expected: u32, timeout: Option<::std::time::Duration>) {
            <$below as $crate::Platform>::futex_wait(atom, expected, timeout);
        }
        fn futex_wake(atom: &Self::AtomicU32, n: u32) {
            <$below as $crate::Platform>::futex_wake(atom, n);
        }
    };
    (@cells $below:ty) => {
        const EXPLORED: bool = <$below as $crate::Platform>::EXPLORED;
        const TURNS_BEFORE_SLEEP: u32 = <$below as $crate::Platform>::TURNS_BEFORE_SLEEP;
        type Cell<T> = <$below as $crate::Platform>::Cell<T>;
    };
    (@doorbell $below:ty) => {
        type Doorbell = <$below as $crate::Platform>::Doorbell;
    };
    (@spawn $below:ty) => {
        fn spawn(
            name: &str,
            cpu: Option<usize>,
            class: $crate::ThreadClass,
            body: impl FnOnce() + Send + 'static,
        ) -> Self::JoinHandle {
            <$below as $crate::Platform>::spawn(name, cpu, class, body)
        }
    };
    (@join $below:ty) => {
        type JoinHandle = <$below as $crate::Platform>::JoinHandle;
        fn join(handle: Self::JoinHandle) -> ::std::thread::Result<()> {
            <$below as $crate::Platform>::join(handle)
        }
    };
    (@spin $below:ty) => {
        fn relax(spins: u32) {
            <$below as $crate::Platform>::relax(spins);
        }
        fn yield_now() {
            <$below as $crate::Platform>::yield_now();
        }
    };
    (@now $below:ty) => {
        fn now() -> u64 {
            <$below as $crate::Platform>::now()
        }
    };
    (@random $below:ty) => {
        fn random() -> u64 {
            <$below as $crate::Platform>::random()
        }
    };
    (@thread $below:ty) => {
        fn thread_index() -> usize {
            <$below as $crate::Platform>::thread_index()
        }
        fn known_thread_index() -> usize {
            <$below as $crate::Platform>::known_thread_index()
        }
        fn thread_name() -> String {
            <$below as $crate::Platform>::thread_name()
        }
        fn in_callback() -> bool {
            <$below as $crate::Platform>::in_callback()
        }
        fn set_in_callback(inside: bool) -> bool {
            <$below as $crate::Platform>::set_in_callback(inside)
        }
    };
    (@priority $below:ty) => {
        fn lend(thread: usize) {
            <$below as $crate::Platform>::lend(thread);
        }
        fn repay() {
            <$below as $crate::Platform>::repay();
        }
    };
    (@runs $below:ty) => {
        fn runs(thread: usize) -> Option<bool> {
            <$below as $crate::Platform>::runs(thread)
        }
        fn has_turnstiles() -> bool {
            <$below as $crate::Platform>::has_turnstiles()
        }
        fn consult_turnstile(word: &Self::AtomicU32) {
            <$below as $crate::Platform>::consult_turnstile(word);
        }
    };
    (@fences $below:ty) => {
        fn fence(order: $crate::Ordering) {
            <$below as $crate::Platform>::fence(order);
        }
        fn light_fence() {
            <$below as $crate::Platform>::light_fence();
        }
        fn heavy_fence() {
            <$below as $crate::Platform>::heavy_fence();
        }
    };
    (@profile $below:ty) => {
        fn lock_counters() -> Option<&'static $crate::profile::ThreadCounters> {
            <$below as $crate::Platform>::lock_counters()
        }
    };
    (@held $below:ty) => {
        fn with_held(look: impl FnOnce(&$crate::lock_order::HeldLocks)) {
            <$below as $crate::Platform>::with_held(look);
        }
    };
}
