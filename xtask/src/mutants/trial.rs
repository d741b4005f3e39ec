//! Runs tests against the mutants of one build.
//!
//! First each test runs alone without a mutant, and records which mutants it asks for: no other test can catch these.
//! Then each mutant runs against its tests, the shortest first, until one fails. A program without output for a long
//! time is ended with its group, and the mutant counts as caught, because it hangs.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// How long a test may be without output, in addition to twenty times its duration without a mutant.
const PATIENCE: Duration = Duration::from_secs(6);

/// A test, and its duration and mutants in a run without a mutant.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Test {
    program: PathBuf,
    name: String,
    took: Duration,
    passes: bool,
    /// The numbers of the mutants that it asks for.
    reached: BTreeSet<usize>,
}

impl Test {
    /// Whether it takes less than half a second.
    pub fn is_quick(&self) -> bool {
        self.took < Duration::from_millis(500)
    }
}

/// The directory in which programs run, and the file of their outcomes.
pub struct Trial {
    /// The directory of the package, where cargo runs its tests.
    pub package: PathBuf,
    pub records: PathBuf,
}

/// The outcome of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Caught(String),
    Hung,
    /// The number of tests that reach it, all of which pass.
    Survived(usize),
}

impl Trial {
    /// The tests of these programs, each run once. Programs that have not changed since the last run are not run again.
    ///
    /// # Errors
    /// A program cannot be run.
    pub fn record(&self, programs: &[PathBuf]) -> Result<Vec<Test>, String> {
        let mut all = Vec::new();
        for program in programs {
            let built = fs::metadata(program).and_then(|file| file.modified()).unwrap_or(UNIX_EPOCH);
            let stamp = built.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
            let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let kept = self.records.join(format!("{name}-{stamp}.json"));
            if let Some(tests) = fs::read(&kept).ok().and_then(|text| serde_json::from_slice(&text).ok()) {
                let tests: Vec<Test> = tests;
                all.extend(tests);
                continue;
            }
            let names = self.names(program)?;
            let tests: Vec<Test> = names.into_iter().map(|name| self.alone(program, name)).collect();
            println!("{name}: {} tests take {:.0?}", tests.len(), tests.iter().map(|test| test.took).sum::<Duration>());
            let text = serde_json::to_vec(&tests).map_err(|error| error.to_string())?;
            fs::write(&kept, text).map_err(|error| format!("cannot write {}: {error}", kept.display()))?;
            all.extend(tests);
        }
        for test in all.iter().filter(|test| !test.passes) {
            println!("left out, because it fails without a mutant: {} of {}", test.name, test.program.display());
        }
        Ok(all)
    }

    /// The names of a program's tests.
    fn names(&self, program: &Path) -> Result<Vec<String>, String> {
        let output = self.tester(program).args(["--list", "--format", "terse"]).output();
        let output = output.map_err(|error| format!("{} cannot be run: {error}", program.display()))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(text.lines().filter_map(|line| Some(line.strip_suffix(": test")?.to_owned())).collect())
    }

    /// Runs one test without a mutant.
    fn alone(&self, program: &Path, name: String) -> Test {
        let file = self.records.join("reached");
        // Left by the test before.
        let _ = fs::remove_file(&file);
        let mut command = self.tester(program);
        command.args(["--exact", &name, "--test-threads", "1"]).env("HEDDLE_REACHED", &file);
        let start = Instant::now();
        let passes = watch(command, PATIENCE * 100) == Watched::Passed;
        let reached = fs::read_to_string(&file).unwrap_or_default();
        let reached = reached.lines().filter_map(|line| line.parse().ok()).collect();
        Test { program: program.to_owned(), name, took: start.elapsed(), passes, reached }
    }

    fn tester(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.package).env("CARGO_MANIFEST_DIR", &self.package);
        // As in `cargo xtask ci models`.
        command.env("LOOM_MAX_PREEMPTIONS", "2");
        command.env("INSTA_UPDATE", "no").env("RUST_BACKTRACE", "0").stdin(Stdio::null());
        command
    }

    /// Runs the tests that ask for mutant `number`.
    pub fn run(&self, number: usize, tests: &[Test]) -> Outcome {
        let asks = |test: &&Test| test.passes && test.reached.contains(&number);
        let mut asking: Vec<&Test> = tests.iter().filter(asks).collect();
        asking.sort_by_key(|test| test.took);
        for part in parts(&asking) {
            let programs: BTreeSet<&Path> = part.iter().map(|test| test.program.as_path()).collect();
            for program in programs {
                let tests = part.iter().filter(|test| test.program == program);
                let longest = tests.clone().map(|test| test.took).max().unwrap_or_default();
                let mut command = self.tester(program);
                command.args(["--exact", "--test-threads", "1"]).args(tests.map(|test| &test.name));
                command.env("HEDDLE_MUTANT", number.to_string());
                match watch(command, longest * 20 + PATIENCE) {
                    Watched::Passed => {}
                    Watched::Failed(test) => return Outcome::Caught(test),
                    Watched::Silent => return Outcome::Hung,
                }
            }
        }
        Outcome::Survived(asking.len())
    }
}

/// Divides tests, which are sorted by their time, so that few long ones run before the short ones have passed.
fn parts<'a, 'b>(tests: &'b [&'a Test]) -> Vec<&'b [&'a Test]> {
    let mut parts = Vec::new();
    let mut rest = tests;
    let mut budget = Duration::from_millis(100);
    while !rest.is_empty() {
        let mut sum = Duration::ZERO;
        let fitting = rest.iter().take_while(|test| {
            sum += test.took;
            sum <= budget
        });
        let (part, others) = rest.split_at(fitting.count().max(1));
        parts.push(part);
        rest = others;
        budget *= 5;
    }
    parts
}

#[derive(Debug, PartialEq, Eq)]
enum Watched {
    Passed,
    /// The name of the test, or the status of a program that ended otherwise.
    Failed(String),
    Silent,
}

/// Runs a test program until it ends, a test fails, or no line comes for `patience`.
fn watch(mut command: Command, patience: Duration) -> Watched {
    command.stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Watched::Failed(error.to_string()),
    };
    let Some(output) = child.stdout.take() else { return Watched::Silent };
    let lines = lines(output);
    let seen = loop {
        match lines.recv_timeout(patience) {
            Ok(line) if line.ends_with("... FAILED") => {
                break Some(Watched::Failed(line.trim_start_matches("test ").replace(" ... FAILED", "")));
            }
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => break Some(Watched::Silent),
            Err(RecvTimeoutError::Disconnected) => break None,
        }
    };
    let status = if seen.is_some() {
        end(&mut child);
        None
    } else {
        child.wait().ok()
    };
    match (seen, status) {
        (Some(seen), _) => seen,
        (None, Some(status)) if status.success() => Watched::Passed,
        (None, status) => Watched::Failed(status.map_or_else(String::new, |status| status.to_string())),
    }
}

/// The lines of `output`, read by a thread that ends with it.
fn lines(output: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Ends the child with all processes of its group.
fn end(child: &mut Child) {
    let _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).stderr(Stdio::null()).status();
    // It may have ended by itself.
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(millis: u64) -> Test {
        let took = Duration::from_millis(millis);
        Test { program: PathBuf::new(), name: millis.to_string(), took, passes: true, reached: BTreeSet::new() }
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn short_tests_run_before_long_ones() {
        let tests: Vec<Test> = [10, 20, 30, 90, 300, 600, 9000].map(test).to_vec();
        let tests: Vec<&Test> = tests.iter().collect();
        let sizes: Vec<usize> = parts(&tests).iter().map(|part| part.len()).collect();
        assert_eq!(sizes, [3, 2, 1, 1]);
    }

    #[test]
    fn a_program_is_watched_until_it_passes_fails_or_hangs() {
        let long = Duration::from_secs(60);
        assert_eq!(watch(shell("echo 'test a ... ok'"), long), Watched::Passed);
        let failed = Watched::Failed("a::b".to_owned());
        assert_eq!(watch(shell("echo 'test a::b ... FAILED'; exec tail -f /dev/null"), long), failed);
        assert!(matches!(watch(shell("kill -ABRT $$"), long), Watched::Failed(_)));
        assert_eq!(watch(shell("exec tail -f /dev/null"), Duration::from_millis(50)), Watched::Silent);
    }
}
