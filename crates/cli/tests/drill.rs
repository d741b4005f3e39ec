//! `heddle drill` as a person runs it: what it prints, how it exits, what it writes.

use std::path::Path;
use std::process::{Command, Output};

fn drill(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "120", env!("CARGO_BIN_EXE_heddle"), "drill"]).args(arguments);
    command.current_dir(directory).output().expect("the binary runs")
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const GOOD: &str = "0 < 5000 > 9 S 0:0(0) win 1000 <mss 1000>\n+0 > 9 > 5000 R. 0:0(0) ack 1\n";

#[test]
fn a_good_script_goes_through_under_every_architecture_and_leaves_a_capture() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("good.pkt"), GOOD).expect("a file");
    let output = drill(directory.path(), &["good.pkt", "-v", "--pcap", "captures"]);
    assert!(output.status.success(), "{}", printed(&output));
    assert_eq!(printed(&output), "good.pkt: ok\n1 of 1 scripts went through\n");
    let capture = std::fs::read(directory.path().join("captures/good.pcapng")).expect("a capture");
    assert_eq!(capture[..4], [0x0a, 0x0d, 0x0d, 0x0a], "it begins as pcapng does");
}

#[test]
fn a_script_that_fails_is_told_in_one_line_with_both_packets() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("bad.pkt"), GOOD.replace("ack 1", "ack 2")).expect("a file");
    std::fs::write(directory.path().join("nonsense.pkt"), "\n0 nonsense\n").expect("a file");
    let output = drill(directory.path(), &[".", "--arch", "msgp:6"]);
    assert_eq!(output.status.code(), Some(1));
    let printed = printed(&output);
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines.len(), 3, "{printed}");
    let expected = "bad.pkt:2: expected > 9 > 5000 R. 0:0(0) ack 2, got > 9 > 5000 R. 0:0(0) ack 1";
    assert!(lines[0].contains(expected) && lines[0].ends_with("(under msgp:6)"), "{printed}");
    assert!(lines[1].contains("nonsense.pkt:2: expected `(`"), "{printed}");
    assert_eq!(lines[2], "0 of 2 scripts went through");
}

#[test]
fn wrong_use_is_told_before_anything_runs() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("good.pkt"), GOOD).expect("a file");
    for arguments in [&["none.pkt"][..], &["good.pkt", "--arch", "cray"], &["good.pkt", "--sysctl", "tcp_sack"], &[]] {
        assert_eq!(drill(directory.path(), arguments).status.code(), Some(2), "{arguments:?}");
    }
}
