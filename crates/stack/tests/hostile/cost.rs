//! The cost of work, in processor time of the calling thread: other programs on the machine do not count.

use std::fs;

/// Processor time of this thread, in nanoseconds. Linux only, like all tests here.
fn processor_time() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel keeps account of threads");
    let first = text.split_whitespace().next().expect("a number");
    first.parse().expect("nanoseconds")
}

/// Processor time of `work`, in nanoseconds.
pub fn of(work: impl FnOnce()) -> u64 {
    let before = processor_time();
    work();
    processor_time() - before
}
