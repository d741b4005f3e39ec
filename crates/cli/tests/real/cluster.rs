//! A job array of `heddle paper run --slurm` under Debian's Slurm: one node, on loopback in the test's namespace, with a key,
//! a configuration and a state of its own.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::namespace::{Namespace, in_namespace};
use crate::process::{Process, output};

/// The programs of the packages slurm-wlm and munge that are used here.
const PROGRAMS: [&str; 5] = ["munged", "slurmctld", "slurmd", "sbatch", "unshare"];

/// Slurm's daemons. They and every job are in a process namespace, and end with its first process, which a drop kills.
struct Cluster {
    configuration: String,
    _daemons: Process,
}

impl Cluster {
    /// Starts the daemons. `sbatch` waits for the controller, and a job for the node.
    fn start(space: &Namespace) -> Cluster {
        let directory = space.directory("slurm");
        let at = |name: &str| format!("{directory}/{name}");
        let node = fs::read_to_string("/proc/sys/kernel/hostname").expect("a name").trim().to_owned();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let configuration = format!(
            "ClusterName=heddle\nSlurmctldHost={node}(127.0.0.1)\nSlurmctldPort=7817\nSlurmdPort=7818\n\
             SlurmUser=root\nSlurmdUser=root\nAuthType=auth/munge\nAuthInfo=socket={socket}\nCryptoType=crypto/munge\n\
             StateSaveLocation={state}\nSlurmdSpoolDir={spool}\nSlurmctldPidFile={state}/slurmctld.pid\n\
             SlurmdPidFile={state}/slurmd.pid\nProctrackType=proctrack/pgid\nTaskPlugin=task/none\nSwitchType=switch/none\n\
             MpiDefault=none\nMessageTimeout=60\nSelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nReturnToService=2\n\
             NodeName={node} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN\n\
             PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n",
            socket = at("munge.socket"),
            state = space.directory("slurm/state"),
            spool = space.directory("slurm/spool"),
        );
        fs::write(at("slurm.conf"), configuration).expect("room");
        fs::write(at("key"), [7; 1024]).expect("room");
        output(&["chmod", "600", &at("key")]);
        // --force: the directory of a test is nobody else's, but its parent may be everybody's. munged returns when its
        // socket takes calls.
        let daemons = "munged --force --socket=\"$PWD/munge.socket\" --key-file=\"$PWD/key\" --pid-file=\"$PWD/munge.pid\" \
                       --seed-file=\"$PWD/munge.seed\" --log-file=\"$PWD/munge.log\" && echo begun || exit 1\n\
                       slurmctld -D -f slurm.conf &\nslurmd -D -f slurm.conf &\nwait";
        let script = format!("cd '{directory}'; export SLURM_CONF='{directory}/slurm.conf'; {daemons}");
        let own = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", &script];
        let daemons = Process::start(&own);
        daemons.line_with("begun");
        Cluster { configuration: at("slurm.conf"), _daemons: daemons }
    }

    /// Runs the command by which a line says that tasks are submitted, and waits for the end of the job.
    fn submit(&self, said: &str) {
        let submission = said.split('`').find(|part| part.starts_with("sbatch ")).expect("how it is submitted");
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "300", "sh", "-c", submission]);
        let ended = command.env("SLURM_CONF", &self.configuration).env("SBATCH_WAIT", "1").output().expect("it starts");
        let (out, error) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        assert!(ended.status.success() && out.contains("Submitted batch job"), "{submission}: {out}{error}");
    }
}

/// Runs `heddle paper` in a directory: its exit status and all that it said.
fn paper(directory: &str, words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "300", env!("CARGO_BIN_EXE_heddle"), "paper"]).args(words).current_dir(directory);
    let ended = command.output().expect("it starts");
    let said = [ended.stdout, ended.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (ended.status.code(), said.concat())
}

/// What a store has of each point, without what differs between two runs of it.
fn values(report: &Path) -> Vec<(String, String)> {
    let text = fs::read_to_string(report.join("points.jsonl")).expect("a store");
    let one = |line: &str| {
        let sample: serde_json::Value = serde_json::from_str(line).expect("a sample");
        let point = ["machine", "arch", "workload", "seed", "commit"].map(|name| sample[name].to_string());
        assert!(sample["host"]["kernel"].is_string() && sample["host"]["cpu_model"].is_string(), "{sample}");
        (point.join(" "), format!("{} {}", sample["values"], sample["parameters"]))
    };
    let mut values: Vec<(String, String)> = text.lines().map(one).collect();
    values.sort();
    values
}

/// The end of each log.
fn logs(directory: &str) -> Vec<(String, usize)> {
    let entries = fs::read_dir(format!("{directory}/jobs here/log")).expect("logs");
    let one = |entry: fs::DirEntry| {
        let text = fs::read_to_string(entry.path()).expect("a log");
        (entry.file_name().into_string().expect("a name"), text.matches(": measured, samples: 1").count())
    };
    let mut logs: Vec<(String, usize)> = entries.map(|entry| one(entry.expect("a log"))).collect();
    logs.sort();
    logs
}

#[test]
fn slurm_runs_a_job_array_and_its_results_are_those_of_a_run() {
    in_namespace(&PROGRAMS, |space| {
        let directory = space.directory("papers");
        let cluster = Cluster::start(space);
        let figure = ["run", FIGURE, "--on", "vsmp", "--seeds", "1"];
        let slurm = [&figure[..], &["--slurm", "jobs here", "--limit", "2"]].concat();
        let (code, said) = paper(&directory, &slurm);
        assert!(code == Some(0) && said.contains(&format!("{TASKS} tasks are to be run (0 more are done)")), "{said}");
        cluster.submit(&said);
        let all: Vec<(String, usize)> = (1..=TASKS).map(|number| (format!("{number}.txt"), 1)).collect();
        assert_eq!(logs(&directory), all);

        // One is missing: the array has it and nothing else.
        fs::remove_file(format!("{directory}/jobs here/results/2.json")).expect("the result");
        let (code, said) = paper(&directory, &["collect", "jobs here", "--report", "half"]);
        assert!(code == Some(1) && said.contains("sbatch --array=2 '") && said.contains(" 1 of "), "{said}");
        let (code, said) = paper(&directory, &slurm);
        let there = TASKS - 1;
        assert!(code == Some(0) && said.contains(&format!("1 tasks are to be run ({there} more are done)")), "{said}");
        cluster.submit(&said);
        let twice: Vec<(String, usize)> =
            all.iter().map(|(name, _)| (name.clone(), if name == "2.txt" { 2 } else { 1 })).collect();
        assert_eq!(logs(&directory), twice, "one ran, and no other");

        let (code, said) = paper(&directory, &["collect", "jobs here", "--report", "book"]);
        assert!(code == Some(0) && said.contains(&format!("{TASKS} of {TASKS} tasks have a result")), "{said}");
        let (code, said) = paper(&directory, &[&figure[..], &["--report", "without"]].concat());
        assert_eq!(code, Some(0), "{said}");
        let at = |name: &str| values(&Path::new(&directory).join(name));
        assert_eq!((at("book"), at("book").len()), (at("without"), TASKS));
    });
}

/// A figure of few and small points, and how many it has with one seed.
const FIGURE: &str = "netbsd.interrupts";
/// See [`FIGURE`].
const TASKS: usize = 3;
