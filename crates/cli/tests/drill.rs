//! `heddle drill` as a command: output, exit status, files.

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
    assert_eq!(printed(&output), "good.pkt: ok\n1 of 1 scripts passed\n");
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
    assert_eq!(lines[2], "0 of 2 scripts passed");
}

#[test]
fn wrong_use_is_told_before_anything_runs() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("good.pkt"), GOOD).expect("a file");
    std::fs::create_dir(directory.path().join("empty")).expect("a directory");
    let cases = [
        (
            &["none.pkt"][..],
            "there is no none.pkt: name a script, which ends in .pkt, or a directory that contains some",
        ),
        (&["good.pkt", "empty"], "there is no script in empty: names of scripts end in .pkt"),
        (&["good.pkt", "--arch", "cray"], "unknown architecture"),
        (
            &["good.pkt", "--sysctl", "tcp_sack"],
            "`tcp_sack` is not an assignment: write NAME=VALUE, such as tcp_sack=1",
        ),
        (&["good.pkt", "--sysctl", "tcp_sack=7"], "tcp_sack cannot be `7`: give a whole number from 0 to 1"),
        (
            &["good.pkt", "--sysctl-dir", "none"],
            "there is no directory none: name a directory of files such as tcp_sack",
        ),
        (&["good.pkt", "-D", "COOKIE"], "`COOKIE` is not a definition: write NAME=VALUE"),
        (&[], "required"),
    ];
    for (arguments, said) in cases {
        let output = drill(directory.path(), arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(error.contains(said) && output.stdout.is_empty(), "{arguments:?}: {error}");
    }
}

#[test]
fn what_is_no_text_is_told_without_a_line() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("noise.pkt"), [0xff, 0xfe, 0]).expect("a file");
    let output = drill(directory.path(), &["noise.pkt"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(printed(&output), "noise.pkt: it is not text\n0 of 1 scripts passed\n");
}

/// Knobs of a directory are set first, then those of the command line, and the script sees the result.
#[test]
fn knobs_come_from_a_directory_and_from_the_command_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let script = "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n+0 fcntl(3, F_SETFL, O_RDWR|O_NONBLOCK) = 0\n\
        +0 connect(3, ..., ...) = -1 EINPROGRESS (it goes on)\n+0 > S 0:0(0) <OPTIONS>\n";
    std::fs::create_dir(directory.path().join("knobs")).expect("a directory");
    std::fs::write(directory.path().join("knobs/tcp_timestamps"), "0\n").expect("a file");
    std::fs::write(directory.path().join("knobs/tcp_sack"), "0\n").expect("a file");
    let cases = [
        (&[][..], "mss 1460,sackOK,TS val 100 ecr 0,nop,wscale 7"),
        (&["--sysctl-dir", "knobs"], "mss 1460,nop,wscale 7"),
        (&["--sysctl-dir", "knobs", "--sysctl", "tcp_sack=1"], "mss 1460,nop,nop,sackOK,nop,wscale 7"),
    ];
    for (arguments, options) in cases {
        std::fs::write(directory.path().join("syn.pkt"), script.replace("OPTIONS", options)).expect("a file");
        let output = drill(directory.path(), &[&["syn.pkt", "--arch", "up"], arguments].concat());
        assert!(output.status.success(), "{arguments:?}: {}", printed(&output));
    }
}
