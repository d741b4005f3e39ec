//! Which tests failed, collected while a run of `cargo test` prints, for the last lines of a run of all steps, so that
//! the end of a long log names them.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// So many failed tests are named at the end; the log has all.
const MOST: usize = 12;

/// Runs `command`, prints its standard output as it comes, and names the failed tests in the error.
pub fn run(command: Command) -> Result<(), String> {
    run_to(command, &mut std::io::stdout())
}

fn run_to(mut command: Command, to: &mut dyn Write) -> Result<(), String> {
    let unable = |error| format!("cargo could not be run: {error}");
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(unable)?;
    let mut failures = Failures::default();
    let mut output = BufReader::new(child.stdout.take().expect("the output is piped"));
    let mut line = Vec::new();
    // Bytes, because a test may print what is not UTF-8.
    while output.read_until(b'\n', &mut line).map_err(unable)? > 0 {
        to.write_all(&line).and_then(|()| to.flush()).map_err(|error| format!("cannot print: {error}"))?;
        failures.read(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    let status = child.wait().map_err(unable)?;
    if status.success() { Ok(()) } else { Err(format!("cargo ended with {status}{}", failures.named())) }
}

/// The state after the lines read so far.
#[derive(Default)]
struct Failures {
    tests: Vec<String>,
    /// Each panic: the thread, which a test gives its name, the place, and the first line of the message.
    panics: Vec<(String, String)>,
    /// The last line ended where a message begins.
    message_follows: bool,
}

impl Failures {
    fn read(&mut self, line: &str) {
        if std::mem::take(&mut self.message_follows)
            && let Some((_, said)) = self.panics.last_mut()
        {
            said.push_str(line);
        }
        if let Some(name) = line.strip_prefix("test ").and_then(|line| line.strip_suffix(" ... FAILED")) {
            self.tests.push(name.to_owned());
        } else if let Some((thread, place)) =
            line.strip_prefix("thread '").and_then(|line| line.split_once("panicked at "))
        {
            let thread = thread.rsplit_once('\'').map_or(thread, |(name, _)| name);
            self.panics.push((thread.to_owned(), format!("{place} ")));
            self.message_follows = true;
        }
    }

    fn named(&self) -> String {
        let name = |test: &String| match self.panics.iter().find(|(thread, _)| thread == test) {
            Some((_, said)) => format!("\n  {test}: {said}"),
            None => format!("\n  {test}"),
        };
        let more = self.tests.len().saturating_sub(MOST);
        let rest = if more > 0 { format!("\n  and {more} more") } else { String::new() };
        self.tests.iter().take(MOST).map(name).collect::<String>() + &rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_are_named_with_what_they_said() {
        let mut shell = Command::new("sh");
        let log = "test a::fine ... ok\\ntest b::lost ... FAILED\\ntest c::quiet ... FAILED\\n\
                   thread 'b::lost' (12) panicked at crates/b/src/lib.rs:3:5:\\nassertion failed: held\\nmore\\n";
        shell.args(["-c", &format!("printf \"{log}\"; exit 3")]);
        let mut printed = Vec::new();
        let error = run_to(shell, &mut printed).unwrap_err();
        assert_eq!(String::from_utf8(printed).expect("text").lines().count(), 6, "all of it is printed");
        assert_eq!(
            error,
            "cargo ended with exit status: 3\n  b::lost: crates/b/src/lib.rs:3:5: assertion failed: held\n  c::quiet"
        );
    }

    #[test]
    fn a_long_list_is_cut_and_counted() {
        let mut failures = Failures::default();
        (0..MOST + 2).for_each(|n| failures.read(&format!("test t{n} ... FAILED")));
        assert_eq!(failures.named().lines().count(), 1 + MOST + 1);
        assert!(failures.named().ends_with("and 2 more"));
    }

    #[test]
    fn success_has_nothing_to_name() {
        assert_eq!(run(Command::new("true")), Ok(()));
    }
}
