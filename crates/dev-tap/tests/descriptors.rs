//! A TAP device in a process at its limit of open files: at whichever descriptor the limit is reached, opening fails
//! with an error that names the interface and the remedy, and leaves nothing open. The limit is per process, so the
//! test runs this program again as a child, in a network namespace of its own.

use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;

use dev::Device;
use dev_tap::{Tap, TapError, TapOptions};

/// Marks the child process.
const CHILD: &str = "HEDDLE_TEST_TAP_WITH_FEW_DESCRIPTORS";
const QUEUES: usize = 3;
/// Two for each queue, and one for requests to the kernel.
const NEEDED: u64 = 2 * QUEUES as u64 + 1;

/// The numbers of the descriptors that are open, in order. The last one, or one in a gap, is that of the directory
/// read.
fn open_files() -> Vec<u64> {
    let directory = std::fs::read_dir("/proc/self/fd").expect("it is there");
    let number = |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    let mut numbers: Vec<u64> = directory.filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

/// Lets the process open files up to this number; returns the limit before.
fn limit(files: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live local of the type that the call fills in.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }, 0);
    let before = limit.rlim_cur;
    limit.rlim_cur = files;
    // SAFETY: as above; it is only read.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    before
}

/// Marks inherited descriptors close-on-exec, because in children they would take numbers below the limit.
fn close_in_children() {
    for number in open_files().into_iter().filter(|number| *number > 2) {
        // SAFETY: takes plain integers, and closes nothing in this process. The number of the directory that was read
        // is already closed, which is only an error.
        unsafe { libc::fcntl(number as libc::c_int, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

/// Opens files until no number is free below the highest open one. Files opened later get the numbers after it, one by
/// one.
fn fill_gaps() -> Vec<OwnedFd> {
    let highest = open_files().pop().expect("the directory itself");
    let mut fillers = Vec::new();
    while fillers.last().is_none_or(|last: &OwnedFd| (last.as_raw_fd() as u64) < highest) {
        fillers.push(std::fs::File::open("/dev/null").expect("it opens").into());
    }
    fillers
}

/// The child.
fn attempts() {
    let fillers = fill_gaps();
    let next = fillers.last().expect("one at least").as_raw_fd() as u64 + 1;
    let before = open_files();
    let options = TapOptions { queues: QUEUES, ..TapOptions::default() };
    for left in 0..NEEDED {
        let usual = limit(next + left);
        let error = Tap::open("tap0", options.clone()).expect_err("a descriptor is missing");
        limit(usual);
        let said = error.to_string();
        assert!(matches!(error, TapError::NoDescriptor { .. }), "{left} left: {error:?}");
        assert!(said.contains("tap0") && said.contains("ulimit -n"), "{left} left: {said}");
        assert_eq!(open_files(), before, "{left} left");
    }
    limit(next + NEEDED);
    let mut tap = Tap::open("tap0", options).expect("that is enough");
    assert_eq!(tap.take_queues().len(), QUEUES, "and queues take no more");
}

#[test]
fn the_limit_may_come_at_any_descriptor() {
    if std::env::var_os(CHILD).is_some() {
        return attempts();
    }
    let own = std::env::current_exe().expect("this program");
    let mut child = Command::new("unshare");
    child.args(["-n", "--"]).arg(&own).args(["--exact", "the_limit_may_come_at_any_descriptor", "--nocapture"]);
    let possible = Command::new("unshare").args(["-n", "--", "test", "-c", "/dev/net/tun"]).status();
    if !possible.is_ok_and(|status| status.success()) {
        println!("skipped: a network namespace, /dev/net/tun or the command `unshare` is not available here");
        return;
    }
    close_in_children();
    let output = child.env(CHILD, "1").output().expect("a child");
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{error}");
}
