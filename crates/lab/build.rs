//! Records the commit and the compiler of a build. No network; both fall back to "unknown".

use std::process::Command;

fn main() {
    // The message of the benchmark with a presentation layer.
    xdr_build::compile("specifications/samples.x");
    println!("cargo:rerun-if-env-changed=HEDDLE_COMMIT");
    // Results measure the sibling crates; a change there affects "-dirty".
    println!("cargo:rerun-if-changed=..");
    if let Some(head) = run("git", &["rev-parse", "--git-path", "logs/HEAD"])
        && std::path::Path::new(&head).exists()
    {
        println!("cargo:rerun-if-changed={head}");
    }
    println!("cargo:rustc-env=HEDDLE_BUILD_COMMIT={}", commit());
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let version = run(&rustc, &["--version"]).unwrap_or_else(|| "unknown".into());
    println!("cargo:rustc-env=HEDDLE_BUILD_RUSTC={version}");
    let profile = std::env::var("PROFILE").unwrap_or_else(|_| "unknown".into());
    println!("cargo:rustc-env=HEDDLE_BUILD_PROFILE={profile}");
}

/// The commit in `HEDDLE_COMMIT`, set by packagers, else git's, with "-dirty" if tracked files differ.
fn commit() -> String {
    if let Ok(given) = std::env::var("HEDDLE_COMMIT") {
        return given;
    }
    let Some(commit) = run("git", &["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".into();
    };
    let status = ["--no-optional-locks", "status", "--porcelain", "--untracked-files=no"];
    match run("git", &status) {
        Some(_) => format!("{commit}-dirty"),
        None => commit,
    }
}

/// First line of a command's output; `None` if it fails or prints nothing.
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.lines().next()?.trim().to_owned();
    (output.status.success() && !line.is_empty()).then_some(line)
}
