//! Other programs, bounded in time and ended with the test.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;

use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process};
use testbed::limit::HANG;

/// Time limit in seconds for a program that should end by itself.
const LIMIT: &str = "600";

/// Runs a program to its end.
pub fn run<S: AsRef<OsStr>>(words: &[S]) {
    output(words);
}

/// The output of a program, which must succeed.
pub fn output<S: AsRef<OsStr>>(words: &[S]) -> String {
    let shown: Vec<_> = words.iter().map(|word| word.as_ref().to_string_lossy()).collect();
    let shown = shown.join(" ");
    let ended = Command::new("timeout").args(["-k", "5", LIMIT]).args(words).stdin(Stdio::null()).output();
    let ended = ended.unwrap_or_else(|error| panic!("{shown}: {error}"));
    let (out, error) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{shown}: {}\n{out}{error}", ended.status);
    out.into_owned()
}

/// The most files that a program started here can open: its load is chosen accordingly.
pub fn most_files() -> usize {
    getrlimit(Resource::Nofile).maximum.map_or(usize::MAX, |most| most as usize)
}

/// A program in the background. It is killed when this is dropped, or when the thread that started it is gone.
pub struct Process {
    child: Child,
    lines: Receiver<String>,
    errors: Option<JoinHandle<String>>,
}

impl Process {
    /// Starts it.
    pub fn start<S: AsRef<OsStr>>(words: &[S]) -> Process {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("a process");
        let (stdout, mut stderr) = (child.stdout.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            lines.map(|line| sender.send(line)).take_while(Result::is_ok).for_each(drop);
        });
        let errors = std::thread::spawn(move || {
            let mut text = String::new();
            // Output that is not text is not shown.
            let _ = stderr.read_to_string(&mut text);
            text
        });
        Process { child, lines, errors: Some(errors) }
    }

    /// The next line that it prints; `None` at the end of its output.
    pub fn line(&self) -> Option<String> {
        match self.lines.recv_timeout(HANG) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the program says nothing for {HANG:?}"),
        }
    }

    /// Reads until a line contains `text`; returns that line. The program must not end before.
    pub fn line_with(&self, text: &str) -> String {
        loop {
            let line = self.line().unwrap_or_else(|| panic!("the program ended and did not say {text:?}"));
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Interrupts it, as Ctrl-C does.
    pub fn interrupt(&self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
    }

    /// Requests its report.
    pub fn ask(&self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::USR1);
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end: its status, and what it printed to standard error.
    pub fn end(mut self) -> (ExitStatus, String) {
        while self.line().is_some() {}
        let status = self.child.wait().expect("a status");
        let errors = self.errors.take().and_then(|errors| errors.join().ok());
        (status, errors.unwrap_or_default())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
