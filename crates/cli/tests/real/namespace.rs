//! A network namespace for a test, with a TAP interface whose kernel end has addresses.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::process::run;
use crate::serving::Site;

/// The interface in every namespace.
pub const INTERFACE: &str = "tap0";
/// The kernel's end of the cable, and ours.
pub const KERNEL_V4: &str = "10.9.0.1";
pub const KERNEL_V6: &str = "fd09::1";
pub const OURS_V4: &str = "10.9.0.2";
pub const OURS_V6: &str = "fd09::2";

/// One test at a time: each uses all CPUs.
static TURN: Mutex<()> = Mutex::new(());

/// The namespace of the calling thread and of the programs it starts.
pub struct Namespace {
    directory: tempfile::TempDir,
}

/// Prints a message even if the test passes.
pub fn say(text: &str) {
    use std::io::Write;
    // Not through `print`, which is shown for failing tests only.
    let _ = writeln!(std::io::stderr(), "real: {text}");
}

/// Whether `program` can be started.
pub fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Runs `test` on a new thread in a new network namespace, if that is permitted and its programs are installed.
pub fn in_namespace(programs: &[&str], test: impl FnOnce(&Namespace) + Send + 'static) {
    let missing: Vec<&str> =
        ["ip", "setpriv", "timeout"].iter().chain(programs).copied().filter(|program| !installed(program)).collect();
    if !missing.is_empty() {
        say(&format!("skipped, not installed: {}", missing.join(", ")));
        return;
    }
    // A failed test must not fail others.
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let inside = move || {
        if !enter() {
            say("skipped: needs root, network namespaces and /dev/net/tun");
            return;
        }
        let space = Namespace { directory: tempfile::tempdir().expect("a directory") };
        run(&["ip", "link", "set", "lo", "up"]);
        space.restore();
        test(&space);
    };
    if let Err(panic) = std::thread::spawn(inside).join() {
        std::panic::resume_unwind(panic);
    }
}

/// Leaves the machine's network namespace. False: not permitted.
fn enter() -> bool {
    // SAFETY: only the network namespace is unshared, which concerns this thread's sockets and children; other threads
    // do not rely on it.
    let left = unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) };
    let probe = ["tuntap", "add", "mode", "tap", "multi_queue", "vnet_hdr", "name", "probe0"];
    left.is_ok()
        && Path::new("/dev/net/tun").exists()
        && Command::new("ip").args(probe).output().is_ok_and(|output| output.status.success())
}

/// Moves the calling thread to another new namespace, with an interface of these addresses.
pub fn second_namespace(v4: &str, v6: &str) {
    assert!(enter(), "a namespace was permitted a moment ago");
    make_interface(v4, v6);
}

/// Makes the interface, as an administrator would before an unprivileged user runs Heddle.
fn make_interface(v4: &str, v6: &str) {
    run(&["ip", "tuntap", "add", "mode", "tap", "multi_queue", "vnet_hdr", "name", INTERFACE]);
    run(&["ip", "addr", "add", &format!("{v4}/24"), "dev", INTERFACE]);
    run(&["ip", "addr", "add", &format!("{v6}/64"), "dev", INTERFACE, "nodad"]);
    // Frames sent while Heddle is not running on a CPU must wait; a loss here would be an artefact of the test.
    run(&["ip", "link", "set", INTERFACE, "txqueuelen", "20000", "up"]);
}

/// Sets a variable of the kernel's network stack in the calling thread's namespace, named as under `/proc/sys/net`.
pub fn set(variable: &str, value: &str) {
    std::fs::write(format!("/proc/sys/net/{variable}"), value).unwrap_or_else(|error| panic!("{variable}: {error}"));
}

impl Namespace {
    /// Makes the interface, again if it was deleted.
    pub fn restore(&self) {
        make_interface(KERNEL_V4, KERNEL_V6);
    }

    /// A command line of the binary, on the interface; with two queues, unless `arguments` set their number.
    pub fn heddle(&self, arguments: &[&str]) -> Vec<String> {
        let device = format!("tap:{INTERFACE}");
        let (v4, v6) = (format!("{OURS_V4}/24"), format!("{OURS_V6}/64"));
        let network = ["--dev", &device, "--addr", &v4, "--addr", &v6];
        let queues: &[&str] = if arguments.contains(&"--queues") { &[] } else { &["--queues", "2"] };
        let words = [env!("CARGO_BIN_EXE_heddle")].iter().chain(arguments).chain(&network).chain(queues).copied();
        words.map(str::to_owned).collect()
    }

    /// An empty directory of that name, for a program.
    pub fn directory(&self, name: &str) -> String {
        let path = self.directory.path().join(name);
        std::fs::create_dir_all(&path).expect("a directory");
        path.display().to_string()
    }

    /// A directory with a file `big` of `size` bytes, a `small` one and an index page.
    pub fn site(&self, size: usize) -> Site {
        Site::new(self.directory.path(), size)
    }
}
