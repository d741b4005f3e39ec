//! The command line over `mem`: both ends in the process, so neither rights nor a network are needed.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use heddle::ALL_ARCHITECTURES;

/// Runs the binary in `directory` with the words of `arguments`, with a time limit.
fn heddle_in(directory: &Path, arguments: &str) -> Output {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "120", env!("CARGO_BIN_EXE_heddle")]).args(arguments.split_whitespace());
    command.current_dir(directory).output().expect("the binary runs")
}

fn heddle(arguments: &str) -> Output {
    heddle_in(Path::new("."), arguments)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stdout)))
}

#[test]
fn every_level_has_a_help_with_examples() {
    for command in [
        "",
        "serve",
        "serve http",
        "serve echo",
        "serve discard",
        "serve chargen",
        "get",
        "ping",
        "relay",
        "bridge",
        "bridge run",
        "intrctl",
        "rfc2544",
        "paper",
    ] {
        let output = heddle(&format!("{command} --help"));
        let help = text(&output.stdout);
        assert!(output.status.success(), "{command}: {}", text(&output.stderr));
        assert!(help.contains("Example") || help.contains("First steps"), "{command}: {help}");
        assert!(help.contains("Usage: heddle"), "{command}: {help}");
    }
}

#[test]
fn all_architectures_are_listed() {
    let list = text(&heddle("serve --list-arch").stdout);
    let names: Vec<&str> = list.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let (listed, others) = names.split_at(ALL_ARCHITECTURES.len());
    assert_eq!(listed, ALL_ARCHITECTURES);
    let (numbered, faults): (Vec<&str>, Vec<&str>) = others.iter().partition(|name| !name.contains('+'));
    assert_eq!(numbered, ["connp-l:N", "conn-thread:N"]);
    assert_eq!(faults, ["msgp+routes", "msgp+racy-stats", "connp-t+async-wildcard", "connp-l+lazy-broadcast"]);
    assert_eq!(list, text(&heddle("compare --list").stdout));
}

#[test]
fn a_peer_in_the_process_answers_under_every_architecture() {
    for arch in ALL_ARCHITECTURES {
        for address in ["10.0.0.1", "fd00::1"] {
            let output = heddle(&format!("ping {address} -c 2 -i 0.001 -W 30 -s 4000 --queues 2 -j --arch {arch}"));
            let report = json(&output);
            assert_eq!((output.status.code(), &report["received"]), (Some(0), &2.into()), "{arch}: {report}");
            assert_eq!(report["replies"][1]["bytes"], 4000);
        }
    }
}

/// Without IPv6 a link needs only the least MTU of RFC 791.
#[test]
fn small_packets_are_enough_for_ipv4() {
    let directory = tempfile::tempdir().expect("a directory");
    let content: Vec<u8> = (0..20_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(directory.path().join("file"), &content).expect("written");
    for arch in ALL_ARCHITECTURES {
        for mtu in [68, 1279] {
            let output = heddle_in(
                directory.path(),
                &format!("get http://10.0.0.1/file -o copy --queues 2 --arch {arch} --mtu {mtu}"),
            );
            assert!(output.status.success(), "{arch}, {mtu}: {}", text(&output.stderr));
            assert!(std::fs::read(directory.path().join("copy")).expect("the copy") == content, "{arch}, {mtu}");
        }
        let pings = heddle(&format!("ping 10.0.0.1 -c 2 -i 0.001 -W 30 -s 1000 --arch {arch} --mtu 68 -j"));
        assert_eq!(json(&pings)["received"], 2, "{arch}");
    }
}

#[test]
fn a_ping_that_nobody_answers_fails_without_another_word() {
    let lost = Command::new(env!("CARGO_BIN_EXE_heddle"))
        .args(["ping", "10.0.0.1", "-c", "1", "-W", "0.05", "--fault", "loss 100%"])
        .output()
        .expect("the binary runs");
    assert_eq!((lost.status.code(), text(&lost.stderr).as_str()), (Some(1), ""));
    assert!(text(&lost.stdout).contains("1 sent, 0 received, 100 % lost"), "{}", text(&lost.stdout));
}

#[test]
fn a_file_is_fetched_whole_under_every_architecture() {
    let directory = tempfile::tempdir().expect("a directory");
    let content: Vec<u8> = (0..5_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(directory.path().join("file"), &content).expect("written");
    for (index, arch) in ALL_ARCHITECTURES.iter().enumerate() {
        let host = if index % 2 == 0 { "10.0.0.1" } else { "[fd00::1]:8080" };
        let output =
            heddle_in(directory.path(), &format!("get http://{host}/file -o copy -j --queues 2 --arch {arch}"));
        assert!(output.status.success(), "{arch}: {}", text(&output.stderr));
        let report = json(&output);
        assert_eq!((report["bytes"].as_u64(), report["arch"].as_str()), (Some(5_000_000), Some(*arch)));
        assert!(std::fs::read(directory.path().join("copy")).expect("the copy") == content, "{arch}");
    }
}

#[test]
fn without_a_file_the_content_goes_to_standard_output() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("a b"), "content").expect("written");
    let output = heddle_in(directory.path(), "get http://10.0.0.1/a%20b");
    assert_eq!(text(&output.stdout), "content");
}

#[test]
fn what_cannot_be_is_a_usage_error_of_one_sentence() {
    for (arguments, remedy) in [
        ("serve http", "--dev tap:NAME"),
        ("serve http --root /nonexistent --dev tap:x", "/nonexistent"),
        ("serve echo --dev tap:heddle0", "--addr"),
        ("serve echo --dev eth0", "tap:NAME"),
        ("serve echo --port 0", "port"),
        ("get http://example.com/", "--host"),
        ("get https://10.0.0.1/", "http://"),
        ("get http://10.0.0.1/ -j", "--output"),
        ("get http://10.0.0.1/ --addr 10.0.0.1/24", "address of this stack"),
        ("get http://10.0.0.1/ --addr 192.168.0.1/24", "10.0.0.1"),
        ("get http://10.0.0.1/ --lock null", "null lock"),
        ("ping somewhere", "10.0.0.1"),
        ("ping 10.0.0.1 --arch best", "connp-l"),
        ("ping 10.0.0.1 --lock best", "mcs"),
        ("ping 10.0.0.1 --addr 10.0.0.1", "10.0.0.1/24"),
        ("ping 10.0.0.1 --fault gremlins", "loss"),
        ("ping 10.0.0.1 -s 70000", "65507"),
        ("ping 10.0.0.1 -i 0", "seconds"),
        ("relay", "--listen"),
        ("relay --listen 10.0.0.2:80 --to 10.0.0.1:80 --dev tap:x", "kernel:"),
        ("relay --listen kernel:127.0.0.1:80 --to kernel:127.0.0.1:81", "kernel:"),
        ("relay --listen kernel:localhost:80 --to 10.0.0.1:80", "kernel:127.0.0.1:8080"),
        ("relay --listen kernel:127.0.0.1:80 --to 10.0.0.1:0 --dev tap:x", "--to 10.0.0.1:0"),
        ("relay --listen kernel:127.0.0.1:80 --listen kernel:127.0.0.1:81 --to 10.0.0.1:80", "--to for each"),
        ("relay --listen kernel:127.0.0.1:80 --to 10.0.0.1:80", "--dev tap:NAME"),
        ("relay --listen kernel:127.0.0.1:80 --to 10.0.0.1:80 --dev tap:x", "--addr"),
        ("ping 10.0.0.1 --mtu 67", "68 to 65521"),
        ("ping 10.0.0.1 --mtu 65522", "68 to 65521"),
        ("ping 10.0.0.1 --mtu x", "68 to 65521"),
        ("ping fd00::1 --mtu 1279", "1280"),
        ("ping 10.0.0.1 --addr 10.0.0.2/24 --addr fd00::2/64 --mtu 1279", "leave out the IPv6"),
        ("serve echo --dev tap:x --addr fd00::2/64 --mtu 576", "1280"),
        ("serve echo --dev tap:x --addr 10.0.0.2/24 --slaac --mtu 576", "--slaac"),
        ("ping 10.0.0.1 --user 65534:65534", "--dev tap:NAME"),
        ("ping 10.0.0.1 --user 0:0", "rights of root"),
        ("serve echo --rate-per-client 0/s", "50/s"),
        ("serve echo --max-per-client 0", "--max-per-client"),
        ("weave", "--help"),
    ] {
        let output = heddle(arguments);
        let (out, error) = (text(&output.stdout), text(&output.stderr));
        let expected = if arguments.contains("nonexistent") { 1 } else { 2 };
        assert_eq!(output.status.code(), Some(expected), "{arguments}: {out}{error}");
        assert!(error.contains(remedy) && !error.contains("panicked"), "{arguments}: {error}");
    }
}

#[test]
fn papers_are_listed_with_what_runs_them_and_unknown_ones_are_refused() {
    let list = text(&heddle("paper list").stdout);
    for expected in
        ["willmann.fig2", "runs on vsmp and host", "schmidt.fig9", "nahum.locking", "netbsd.tab3", "yates.threads"]
    {
        assert!(list.contains(expected), "no {expected}: {list}");
    }
    assert!(!list.contains("does not run yet"), "every figure can run somewhere: {list}");
    assert_eq!(text(&heddle("paper list nahum.udp").stdout).matches("nahum.").count(), 1);
    let directory = tempfile::tempdir().expect("a directory");
    for (arguments, says) in [
        ("run wilmann", "no paper is called `wilmann`; there are willmann, schmidt, nahum, netbsd, yates, and all"),
        ("run willmann.fig9", "willmann has no figure `willmann.fig9`; there are willmann.fig2, "),
        ("list wilmann", "no paper is called `wilmann`"),
        (
            "run nahum.machines --on host",
            "no figure of nahum.machines can run there: nahum.machines: two simulated machines",
        ),
        ("run willmann --seeds 0", "1..=1000"),
        ("run willmann --quick --full", "--full"),
        ("run willmann --on moon", "host, vsmp"),
        ("run willmann --limit 3", "--slurm"),
        ("run willmann --slurm jobs --limit 0", "1.."),
        ("point {}", "missing field"),
    ] {
        let output = heddle_in(directory.path(), &format!("paper {arguments}"));
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {error}");
        assert!(error.contains(says) && !error.contains("panicked"), "{arguments}: {error}");
    }
    // A virtual machine has no counter of cache misses, as a rule.
    if let Some(reason) = lab::scheduler::SampledEvent::CacheMisses.lacks() {
        let output = heddle_in(directory.path(), "paper run willmann.tab2 --on host");
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(reason), "{error}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).expect("it is there").count(), 0, "nothing was begun");
}

/// Nothing is measured for papers without a runnable figure; they still have pages.
#[test]
fn claims_of_a_directory_are_printed_and_one_writer_is_enough() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = heddle_in(directory.path(), "paper claims --report book");
    let page = text(&output.stdout);
    assert!(output.status.success() && page.starts_with("# The papers' claims"), "{}", text(&output.stderr));
    assert!(page.contains("Nothing has been measured.") && page.matches("| not measured |").count() > 60, "{page}");
    let store = std::fs::File::open(directory.path().join("book/points.jsonl")).expect("the store");
    store.lock().expect("ours");
    let output = heddle_in(directory.path(), "paper run willmann --report book");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("another run writes to book/points.jsonl"), "{}", text(&output.stderr));
}

/// The test plays Slurm: it runs the script of an array with the variable that Slurm sets.
#[test]
fn a_job_array_is_written_run_in_any_order_and_collected() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    let said = |arguments: &str| {
        let output = heddle_in(directory.path(), &format!("paper {arguments}"));
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let slurm = "run netbsd.interrupts --on vsmp --seeds 1 --slurm jobs";
    let (code, written) = said(slurm);
    assert!(
        code == Some(0) && written.contains("3 tasks are to be run (0 more are done), about 2 s of one CPU"),
        "{written}"
    );
    let script = at("jobs/simulated-1.sh");
    assert!(written.contains(&format!("`sbatch {}`", script.display())), "{written}");
    assert!(
        written.contains("`heddle paper collect jobs` reads what is finished") && !at("report").exists(),
        "{written}"
    );
    let task = |number: &str| {
        let mut shell = Command::new("timeout");
        shell.args(["-k", "5", "120", "sh"]).arg(&script).env("SLURM_ARRAY_TASK_ID", number).env_remove("HEDDLE");
        let status = shell.status().expect("a shell");
        (status.code(), std::fs::read_to_string(at(&format!("jobs/log/{number}.txt"))).expect("a log"))
    };
    let (code, log) = task("3");
    assert!(code == Some(0) && log.ends_with(", seed 1: measured, samples: 1\n"), "{log}");
    let (code, log) = task("3");
    assert!(
        code == Some(0) && log.lines().count() == 2 && log.ends_with(", seed 1: the result is there already\n"),
        "{log}"
    );
    let (code, log) = task("4");
    assert!(code == Some(1) && log.contains("has tasks 1 to 3, and no task 4"), "{log}");
    let again = said(slurm).1;
    assert!(again.contains("2 tasks are to be run (1 more are done)"), "{again}");
    assert!(std::fs::read_to_string(&script).expect("the script").contains("--array=1-2%100\n"));

    std::fs::write(at("jobs/results/1.json"), "{\"task\":").expect("half a result");
    let (code, collected) = said("collect jobs --report book");
    assert_eq!(code, Some(1), "{collected}");
    for expected in [
        "1 of 3 tasks have a result in jobs.",
        "Samples in book: 1 new, 0 from before.",
        "jobs/results/1.json: it is damaged or half-written",
        "the next run of task 1 replaces it",
        "Pages: book/index.html",
        "heddle: 2 of 3 tasks have no result: they wait, run or failed",
        &format!("`sbatch --array=1-2 {}` submits them again", script.display()),
    ] {
        assert!(collected.contains(expected), "no {expected}: {collected}");
    }
    assert!([task("1"), task("2")].iter().all(|(code, _)| *code == Some(0)));
    let (code, collected) = said("collect jobs --report book");
    assert!(code == Some(0) && collected.contains("Samples in book: 2 new, 1 from before."), "{collected}");
    assert_eq!(std::fs::read_to_string(at("book/points.jsonl")).expect("the store").lines().count(), 3);
    // A run of the same takes what was collected.
    let (code, run) = said("run netbsd.interrupts --on vsmp --seeds 1 --report book");
    assert!(code == Some(0) && run.contains("0 simulated points (3 more are there)"), "{run}");
    assert!(said(slurm).1.contains("Nothing is missing: `heddle paper collect jobs` writes the pages."));
    let (code, error) = said("collect nothing");
    assert!(code == Some(1) && error.contains("nothing has no tasks.jsonl") && error.lines().count() == 1, "{error}");
}

/// A kill in the middle of a measurement leaves nothing that looks like a result, and the same task runs again.
#[test]
fn a_task_that_is_killed_leaves_no_result() {
    let directory = tempfile::tempdir().expect("a directory");
    let planned = heddle_in(directory.path(), "paper run willmann.fig2 --on vsmp --full --seeds 1 --slurm jobs");
    assert!(planned.status.success(), "{}", text(&planned.stderr));
    let tasks = std::fs::read_to_string(directory.path().join("jobs/tasks.jsonl")).expect("the tasks");
    let longest = tasks.lines().position(|line| line.contains("\"connections\":16384")).expect("a long one") + 1;
    // Its own process group: the kill reaches the process that simulates, as Slurm's does.
    let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
    command.args(["paper", "task", "jobs", &longest.to_string()]).process_group(0);
    let mut child = command.current_dir(directory.path()).spawn().expect("a task");
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    while std::fs::read_to_string(&children).expect("a kernel with CONFIG_PROC_CHILDREN").is_empty() {
        assert!(child.try_wait().expect("a status").is_none(), "it ended before it was killed");
    }
    let group = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process_group(group, rustix::process::Signal::KILL).expect("it is ours");
    assert!(!child.wait().expect("a status").success());
    let results = std::fs::read_dir(directory.path().join("jobs/results")).expect("the directory");
    assert_eq!(results.count(), 0);
    let collected = heddle_in(directory.path(), "paper collect jobs --report book");
    let all = tasks.lines().count();
    assert!(
        text(&collected.stderr).contains(&format!("{all} of {all} tasks have no result")),
        "{}",
        text(&collected.stderr)
    );
}

#[test]
fn what_goes_wrong_names_the_thing() {
    let directory = tempfile::tempdir().expect("a directory");
    for (arguments, name) in [
        ("get http://10.0.0.1/nothing", "404"),
        ("get http://10.0.0.1/ -o no/such/directory", "no/such/directory"),
        ("get http://10.0.0.1/ --root no/such/directory", "no/such/directory"),
        ("ping 10.0.0.1 --pcap no/such/directory", "no/such/directory"),
        ("get http://10.0.0.1/ -o /dev/full", "/dev/full"),
    ] {
        let output = heddle_in(directory.path(), arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments}: {error}");
        assert!(error.contains(name) && error.lines().count() == 1, "{arguments}: {error}");
    }
}

#[test]
fn a_recording_on_a_full_disk_is_reported_after_the_work_is_done() {
    let output = heddle("ping 10.0.0.1 -c 3 -i 0.001 --pcap /dev/full");
    assert!(text(&output.stdout).contains("3 sent, 3 received"), "{}", text(&output.stdout));
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/dev/full"), "{}", text(&output.stderr));
}

#[test]
fn a_reader_that_goes_away_and_a_full_disk_end_a_command_without_a_panic() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("it can be opened");
    let cases =
        [(std::process::Stdio::from(writer), ""), (full.into(), "heddle: cannot write to the standard output: ")];
    for (stdout, said) in cases {
        let output = Command::new(env!("CARGO_BIN_EXE_heddle")).arg("knobs").stdout(stdout).output().expect("it runs");
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.starts_with(said) && error.lines().count() == usize::from(!said.is_empty()), "{error}");
    }
}

/// The receiver decodes each message and ends the command unless it is the next one of its connection.
#[test]
fn ttcp_sends_messages_with_and_without_a_presentation_layer() {
    // 4096 bytes hold a count of 4 bytes and 146 structures of 28.
    for (option, xdr, length) in [
        ("", serde_json::Value::Null, 4096),
        ("--xdr", "field-by-field".into(), 4092),
        ("--xdr bulk", "bulk".into(), 4092),
    ] {
        let words =
            format!("ttcp {option} -n 40 --warmup 1 --reps 2 --conns 3 --threads 2 --arch connp-l:8,connp-t -j");
        let output = heddle(&words);
        let report = json(&output);
        assert_eq!(output.status.code(), Some(0), "{words}: {}", text(&output.stderr));
        assert_eq!((&report["xdr"], &report["length"], &report["repetitions"]), (&xdr, &length.into(), &2.into()));
        for row in report["rows"].as_array().expect("rows") {
            assert!(row["messages"].as_u64() >= Some(80), "{words}: {report}");
            assert!(row["mbps"].as_f64() > Some(0.0) && row["mbps_ci95"].is_f64(), "{words}: {report}");
        }
    }
}

/// At a line so slow that every machine keeps up.
#[test]
fn bridges_are_measured_as_rfc_2544_says() {
    let directory = tempfile::tempdir().expect("a directory");
    let words = "rfc2544 --bridge generic,rcu,cable --workers 1 --size 64,1518 --reps 2 --trial 5 --line-rate 10M --tests latency,loss";
    let output = heddle_in(directory.path(), &format!("{words} -j --report report"));
    let document = json(&output);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = document["rows"].as_array().expect("rows");
    let names: Vec<&str> = rows.iter().filter_map(|row| row["bridge"].as_str()).collect();
    assert_eq!(names, ["generic", "generic", "rcu", "rcu", "cable", "cable"], "{}", document["not_measured"]);
    for row in rows {
        let samples = row["throughput_fps"]["samples"].as_array().expect("samples");
        assert!(samples.len() == 2 && samples.iter().all(|rate| rate.as_f64() > Some(0.0)), "{row}");
    }
    let page = std::fs::read_to_string(directory.path().join("report/index.html")).expect("a page");
    assert!(page.contains("Bridges under RFC 2544"));
    let over_tap = ["--over wire", "--over tap --by-pointer", "--over tap --workers 2", "--over tap --tests flush"];
    for wrong in
        ["--size 63", "--line-rate fast", "--bridge linux", "--work 0", "--resolution 0"].iter().chain(&over_tap)
    {
        let output = heddle(&format!("rfc2544 {wrong}"));
        assert_eq!(output.status.code(), Some(2), "{wrong}: {}", text(&output.stderr));
    }
}

#[test]
fn knobs_are_listed_and_set_by_name() {
    let list = json(&heddle("knobs --profile rfc -j tcp_rto_min_us net.ipv4.tcp_min_tso_segs"));
    assert_eq!(list[0]["value"], "1000000", "{list}");
    assert!(list[0]["idle"].is_null() && list[1]["idle"].is_string(), "{list}");
    let answered = heddle("ping 10.0.0.1 -c 1 -W 30 -j --profile freebsd --sysctl tcp_sack=0 --sysctl tcp_ecn=1");
    assert_eq!(answered.status.code(), Some(0), "{}", text(&answered.stderr));
    let wrong = heddle("ping 10.0.0.1 -c 1 --sysctl tcp_sack=2");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("tcp_sack cannot be `2`: give a whole number from 0 to 1"));
    let wrong = heddle("knobs tcp_sak");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("did you mean `tcp_sack`?"), "{}", text(&wrong.stderr));
}

/// Every limit of descriptors from a process's initial number: either the command succeeds, or a sentence names the
/// shortage and the remedy.
#[test]
fn a_limit_of_open_files_at_any_place_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("file"), vec![7; 100_000]).expect("a file");
    let mut outcomes = Vec::new();
    for most in 3..60 {
        let get = "get http://10.0.0.1/file --root . -o got --pcap frames";
        let limited = format!("ulimit -n {most}; exec timeout -k 5 120 {} {get}", env!("CARGO_BIN_EXE_heddle"));
        let output = Command::new("sh").args(["-c", &limited]).current_dir(directory.path()).output().expect("a shell");
        let (code, error) = (output.status.code(), text(&output.stderr));
        match code {
            Some(0) => {
                let got = std::fs::read(directory.path().join("got")).expect("the file");
                assert!(got == [7; 100_000], "{most} files: {} bytes", got.len());
            }
            // The loader fails before the program begins.
            Some(127) => {}
            Some(1) => assert!(error.starts_with("heddle: ") && error.lines().count() == 1, "{most} files: {error}"),
            _ => panic!("{most} files: {code:?} {error}"),
        }
        outcomes.push(code);
    }
    assert!(outcomes.contains(&Some(1)) && outcomes.ends_with(&[Some(0)]), "{outcomes:?}");
}

/// Every limit of address space: either the command succeeds, or a sentence names the shortage and the remedy. If not
/// even the version can be printed, the program has not begun.
#[test]
fn a_limit_of_memory_at_any_place_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("file"), vec![7; 100_000]).expect("a file");
    let run = |kibibytes: u32, words: &str| {
        let limited = format!("ulimit -v {kibibytes}; exec timeout -k 5 60 {} {words}", env!("CARGO_BIN_EXE_heddle"));
        let mut shell = Command::new("sh");
        shell.env("RUST_BACKTRACE", "0").args(["-c", &limited]).current_dir(directory.path());
        shell.output().expect("a shell")
    };
    std::fs::write(directory.path().join("empty.pkt"), "0 `true`\n").expect("a script");
    // Small steps where a start needs all memory, large ones where the allocator would reserve 64 MiB for each thread.
    let close = (8_000..84_000).step_by(2_300);
    let limits: Vec<u32> = close.chain((90_000..400_000).step_by(60_000)).chain([8_000_000]).collect();
    for words in [
        "get http://10.0.0.1/file --root . -o got --queues 2 --threads 2 --arch connp-t",
        "ping 10.0.0.1 -c 1 --queues 2 --threads 2 --arch squeue",
        "ttcp -n 50 --warmup 1 --threads 2",
        "drill empty.pkt",
    ] {
        let mut outcomes = Vec::new();
        for kibibytes in &limits {
            let output = run(*kibibytes, words);
            let (code, error) = (output.status.code(), text(&output.stderr));
            match code {
                Some(0) => {}
                Some(1) => {
                    let named = error.contains("memory") && error.contains("ulimit -v");
                    assert!(named && error.lines().count() == 1, "{kibibytes} KiB: {words}: {error}");
                }
                _ => {
                    let begins = run(*kibibytes, "--version").status.success();
                    assert!(!begins, "{kibibytes} KiB: {words}: {code:?} {error}");
                }
            }
            outcomes.push(code);
        }
        assert!(outcomes.contains(&Some(1)), "{words}: {outcomes:?}");
        let enough = outcomes.iter().position(|code| *code == Some(0)).expect("8 GB is enough");
        assert!(
            outcomes[enough..].iter().all(|code| *code == Some(0)),
            "{words}: more is never too little: {outcomes:?}"
        );
    }
    assert_eq!(std::fs::read(directory.path().join("got")).expect("the file"), [7; 100_000]);
}
