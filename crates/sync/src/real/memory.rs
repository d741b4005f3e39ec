//! How much memory the process may use.

use std::{fs, mem};

/// The machine's memory in bytes, or less if the process's address space (`ulimit -v`) or its control group is limited.
pub(super) fn limit() -> Option<u64> {
    [machine(), address_space(), control_group()].into_iter().flatten().min()
}

fn machine() -> Option<u64> {
    // SAFETY: both calls take a number and return one.
    let (pages, page) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    Some(u64::try_from(pages).ok()? * u64::try_from(page).ok()?)
}

fn address_space() -> Option<u64> {
    // SAFETY: two integers may be zero.
    let mut limit: libc::rlimit = unsafe { mem::zeroed() };
    // SAFETY: the kernel writes one `rlimit` into ours.
    let refused = unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) } != 0;
    (!refused && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Control group version 2, as seen from inside a container.
fn control_group() -> Option<u64> {
    fs::read_to_string("/sys/fs/cgroup/memory.max").ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_machine_has_memory_and_a_process_no_more_than_that() {
        let machine = super::machine().expect("the kernel says");
        assert!(machine >= 16 << 20, "{machine}");
        assert!(super::limit().is_some_and(|limit| limit <= machine));
    }
}
