//! A script runs in the requested families, and the shell scripts that it runs are read from its directory.

use std::fs;
use std::path::PathBuf;

use heddle_drill::Family;
use heddle_drill::batch::{Batch, Outcome};
use heddle_drill::run::Options;
use stack::Architecture;

/// A directory for the test.
fn directory(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("a directory");
    path
}

fn run(path: &PathBuf, families: &[Family]) -> Outcome {
    let options = Options::new(Architecture::named("up"));
    let families = families.to_vec();
    let batch = Batch {
        architectures: vec![Architecture::named("up")],
        families,
        options,
        defines: Vec::new(),
        jobs: 1,
        captures: None,
    };
    batch.run(std::slice::from_ref(path)).remove(0)
}

const OPENING: &str = "\
0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 getsockopt(3, SOL_SOCKET, SO_DOMAIN, [AF_INET6], [4]) = 0
+0 bind(3, ..., ...) = 0
+0 listen(3, 1) = 0
+0 < S 0:0(0) win 32792 <mss 1000>
+0 > S. 0:0(0) ack 1 <mss 1460>
";

#[test]
fn the_fault_names_the_family() {
    let path = directory("families").join("domain.pkt");
    fs::write(&path, OPENING).expect("it is written");
    assert!(run(&path, &[Family::V6, Family::Mapped]).fault.is_none());
    let outcome = run(&path, &[Family::V6, Family::Mapped, Family::V4]);
    assert_eq!(outcome.families, [Family::V6, Family::Mapped, Family::V4]);
    let line = outcome.line().expect("a socket of IPv4 is not of IPv6");
    assert!(line.ends_with("stored 2 as the option, expected 10 (under up) (over ipv4)"), "{line}");
}

const WITH_SHELL: &str = "\
`./defaults.sh`
0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 bind(3, ..., ...) = 0
+0 listen(3, 1) = 0
+0 < S 0:0(0) win 32792 <mss 1000,sackOK,nop,nop>
+0 > S. 0:0(0) ack 1 <SACK>
";

/// `WITH_SHELL` in a directory whose files are `files`, with the options of the SYN-ACK that it expects.
fn with_files(name: &str, files: &[(&str, &str)], options: &str) -> Option<String> {
    let directory = directory(name);
    for (name, data) in files {
        fs::write(directory.join(name), data).expect("it is written");
    }
    let path = directory.join("script.pkt");
    fs::write(&path, WITH_SHELL.replace("SACK", options)).expect("it is written");
    run(&path, &[Family::V4]).line()
}

#[test]
fn the_scripts_own_defaults_count() {
    assert_eq!(with_files("without", &[], "mss 1460,nop,nop,sackOK"), None);
    let off = "#!/bin/bash\n# Off.\nsysctl -q net.ipv4.tcp_sack=0\n";
    assert_eq!(with_files("with", &[("defaults.sh", off)], "mss 1460"), None);
    // A file that runs another; relative paths count from the packet script.
    let other = ("other.sh", "sysctl -q net.ipv4.tcp_sack=0");
    assert_eq!(with_files("nested", &[("defaults.sh", "./other.sh"), other], "mss 1460"), None);
}

#[test]
fn a_file_that_cannot_be_read_as_knobs_names_its_line() {
    let error = with_files("strange", &[("defaults.sh", "\niptables -F\n")], "mss 1460").expect("no such command");
    assert!(error.contains("script.pkt:1: line 2 of ./defaults.sh: not supported"), "{error}");
    let error = with_files("circle", &[("defaults.sh", "./defaults.sh")], "mss 1460").expect("without an end");
    assert!(error.contains("./defaults.sh runs itself"), "{error}");
}
