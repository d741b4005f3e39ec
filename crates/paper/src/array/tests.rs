//! The tests play the scheduler: they run tasks by number, twice, at once, and not at all.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use super::collect::{Collected, collect};
use super::task::{Ended, run};
use super::*;
use crate::Paper;
use crate::data::Axis;
use crate::point::Sample;
use crate::store::tests::{point, sample};

static NEVER: AtomicBool = AtomicBool::new(false);

fn simulated(count: u64) -> Vec<Work> {
    (1..=count).map(|seed| Work::Simulated(point("x", 6, seed))).collect()
}

fn good(point: &Point) -> Result<Option<Sample>, String> {
    Ok(Some(sample(point.clone(), point.seed as f64)))
}

/// Runs some tasks.
fn run_all(array: &Array, numbers: &[usize]) {
    for number in numbers {
        assert_eq!(run(array, *number, &good, &NEVER), Ok(Ended::Measured(1)), "{number}");
    }
}

fn fold(array: &Array, report: &Path) -> (Collected, Vec<Sample>) {
    let mut store = Store::open(report).unwrap();
    let collected = collect(array, &mut store).unwrap();
    (collected, store.samples().to_vec())
}

fn names(directory: &Path) -> Vec<String> {
    let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = fs::read_dir(directory).unwrap().map(name).collect();
    names.sort();
    names
}

#[test]
fn what_the_tasks_measured_is_in_the_report_once_however_often_it_is_collected() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("book");
    let array = Array::plan(&directory.path().join("jobs"), &simulated(4)).unwrap();
    run_all(&array, &[4, 1, 2]);
    let (first, samples) = fold(&array, &report);
    assert_eq!((first.results, &first.missing[..], first.folded.added, first.folded.known), (3, &[3][..], 3, 0));
    assert!(first.faults.is_empty(), "{:?}", first.faults);
    assert_eq!(samples.iter().map(|sample| sample.point.seed).collect::<Vec<_>>(), [1, 2, 4]);
    run_all(&array, &[3]);
    let (second, samples) = fold(&array, &report);
    assert_eq!((second.missing.len(), second.folded.added, second.folded.known, samples.len()), (0, 1, 3, 4));
    let before = fs::read(report.join(crate::store::FILE)).unwrap();
    assert_eq!(fold(&array, &report).0.folded.added, 0);
    assert_eq!(fs::read(report.join(crate::store::FILE)).unwrap(), before);
    assert_eq!(names(&array.results()), ["1.json", "2.json", "3.json", "4.json"]);
}

#[test]
fn a_task_whose_result_is_there_measures_nothing_and_one_that_fails_leaves_none() {
    let directory = tempfile::tempdir().unwrap();
    let array = Array::plan(directory.path(), &simulated(3)).unwrap();
    run_all(&array, &[1]);
    let count = AtomicUsize::new(0);
    let counting = |point: &Point| {
        count.fetch_add(1, Relaxed);
        if point.seed == 2 { Err("stuck".to_owned()) } else { Ok(None) }
    };
    assert_eq!(run(&array, 1, &counting, &NEVER), Ok(Ended::There));
    assert_eq!(count.load(Relaxed), 0, "the result was there");
    let said = run(&array, 2, &counting, &NEVER).unwrap_err().to_string();
    assert_eq!(said, "task 2, x, 6 connections, seed 2: stuck");
    assert_eq!(run(&array, 3, &counting, &NEVER), Ok(Ended::Stopped), "a signal");
    assert_eq!((array.missing(None), names(&array.results())), (vec![2, 3], vec!["1.json".to_owned()]));
    let said = run(&array, 4, &good, &NEVER).unwrap_err().to_string();
    assert!(said.ends_with("has tasks 1 to 3, and no task 4"), "{said}");
    assert!(run(&array, 0, &good, &NEVER).is_err());
}

/// Both measure before either writes: two nodes after a requeue.
#[test]
fn two_runs_of_a_task_at_once_leave_one_whole_result() {
    let directory = tempfile::tempdir().unwrap();
    let array = Array::plan(directory.path(), &simulated(1)).unwrap();
    let together = Barrier::new(2);
    let measure = |point: &Point| {
        together.wait();
        good(point)
    };
    std::thread::scope(|scope| {
        let runs = [(); 2].map(|()| scope.spawn(|| run(&array, 1, &measure, &NEVER).unwrap()));
        let ends = runs.map(|run| run.join().unwrap());
        assert!(ends.contains(&Ended::Measured(1)), "{ends:?}");
    });
    assert_eq!(names(&array.results()), ["1.json"]);
    assert!(array.missing(None).is_empty() && array.result(1).unwrap().unwrap().samples.len() == 1);
}

#[test]
fn an_array_that_is_planned_again_keeps_its_numbers_and_adds_what_is_new() {
    let directory = tempfile::tempdir().unwrap();
    let first = Array::plan(directory.path(), &simulated(3)).unwrap();
    run_all(&first, &[1, 3]);
    let again = Array::plan(directory.path(), &simulated(3)).unwrap();
    assert_eq!((again.len(), again.missing(None)), (3, vec![2]));
    let mut more = simulated(4);
    more.insert(0, Work::Simulated(point("y", 6, 1)));
    let more = Array::plan(directory.path(), &more).unwrap();
    assert_eq!((more.len(), more.missing(None)), (5, vec![2, 4, 5]));
    assert_eq!(more.tasks[..3], first.tasks[..]);
    // A point that the report has, from elsewhere, is not missing.
    let mut store = Store::open(&directory.path().join("book")).unwrap();
    store.append(vec![sample(point("x", 6, 2), 1.0)]).unwrap();
    assert_eq!(more.missing(Some(&store)), [4, 5]);
}

/// A line that was cut off while it was written is no task, and its number is given again.
#[test]
fn a_plan_that_was_cut_off_is_finished_by_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    let whole = Array::plan(directory.path(), &simulated(3)).unwrap();
    let path = directory.path().join(TASKS);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, &text[..text.len() - 9]).unwrap();
    let again = Array::plan(directory.path(), &simulated(3)).unwrap();
    assert_eq!((again.tasks, fs::read_to_string(&path).unwrap()), (whole.tasks, text.clone()));
    fs::write(&path, format!("nonsense\n{text}")).unwrap();
    let said = Array::open(directory.path()).unwrap_err().to_string();
    assert!(said.contains("tasks.jsonl, line 1: it is not a task"), "{said}");
    let said = Array::open(&directory.path().join("none")).unwrap_err().to_string();
    assert!(said.contains("none has no tasks.jsonl: `heddle paper run ID.. --slurm DIR` writes"), "{said}");
}

#[test]
fn another_commit_neither_adds_tasks_nor_runs_them_and_its_results_are_kept_and_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let array = Array::plan(directory.path(), &simulated(2)).unwrap();
    run_all(&array, &[1]);
    for path in [directory.path().join(TASKS), array.path_of_result(1)] {
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace(&format!("\"commit\":\"{COMMIT}\""), "\"commit\":\"another\"")).unwrap();
    }
    let said = Array::plan(directory.path(), &simulated(3)).unwrap_err().to_string();
    assert!(
        said.contains(&format!("planned by commit another, and this is {COMMIT}: name another directory")),
        "{said}"
    );
    let array = Array::open(directory.path()).unwrap();
    assert_eq!(run(&array, 1, &good, &NEVER), Ok(Ended::There));
    let said = run(&array, 2, &good, &NEVER).unwrap_err().to_string();
    assert!(
        said.contains(&format!("task 2 was planned by commit another, and this program is {COMMIT}: run ")),
        "{said}"
    );
    let report = directory.path().join("book");
    let (collected, samples) = fold(&array, &report);
    assert_eq!((collected.results, collected.folded.others.get("another"), samples.len()), (1, Some(&1), 0));
    let (again, _) = fold(&array, &report);
    assert_eq!((again.folded.others.len(), again.folded.known), (0, 1), "it is kept once");
    assert_eq!(Store::open(&report).unwrap().others(), 1);
}

/// Everything that may lie among the results: each is named, none is deleted, none gets into the report.
#[test]
fn files_that_are_no_results_are_named_and_stay() {
    let directory = tempfile::tempdir().unwrap();
    let array = Array::plan(directory.path(), &simulated(7)).unwrap();
    run_all(&array, &[1, 2, 3, 4, 5, 6]);
    let whole = fs::read_to_string(array.path_of_result(2)).unwrap();
    let put = |number, text: &str| fs::write(array.path_of_result(number), text).unwrap();
    put(2, &whole[..whole.len() / 2]);
    put(3, "");
    put(4, &fs::read_to_string(array.path_of_result(5)).unwrap());
    put(6, &fs::read_to_string(array.path_of_result(6)).unwrap().replace("\"seed\":6", "\"seed\":7"));
    let mixed = fs::read_to_string(array.path_of_result(5)).unwrap();
    let (task, samples) = mixed.split_once("\"samples\"").unwrap();
    put(5, &format!("{task}\"samples\"{}", samples.replace(COMMIT, "another")));
    for name in ["7.node.12.345.part", "9.json", "notes", ".nfs0001"] {
        fs::write(array.results().join(name), "half").unwrap();
    }
    let before = names(&array.results());
    let (collected, kept) = fold(&array, &directory.path().join("book"));
    assert_eq!((collected.results, &collected.missing[..], kept.len()), (1, &[2, 3, 4, 5, 6, 7][..], 1));
    assert_eq!(names(&array.results()), before, "nothing is lost");
    for (name, says) in [
        ("/2.json: ", "damaged or half-written"),
        ("/3.json: ", "damaged or half-written"),
        ("/4.json: ", "the result of another task (x, 6 connections, seed 5)"),
        ("/5.json: ", "a sample of commit another"),
        ("/6.json: ", "another task (x, 6 connections, seed 7)"),
        ("/7.node.12.345.part: ", "a task was ended while it wrote this"),
        ("/9.json: ", "not the name of a task's result"),
        ("/notes: ", "not the name of a task's result"),
    ] {
        let of: Vec<&String> = collected.faults.iter().filter(|fault| fault.contains(name)).collect();
        assert!(of.len() == 1 && of[0].contains(says), "{name}: {:?}", collected.faults);
    }
    assert_eq!(collected.faults.len(), 8, "{:?}", collected.faults);
    // The damaged ones are measured again.
    run_all(&array, &[2, 3, 4, 5, 6]);
    assert_eq!(array.missing(None), [7]);
}

/// A simulated point is the same everywhere; if it was not, that is said, and the first sample stays.
#[test]
fn a_sample_that_differs_from_the_reports_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("book");
    let array = Array::plan(directory.path(), &simulated(2)).unwrap();
    run_all(&array, &[1, 2]);
    Store::open(&report).unwrap().append(vec![sample(point("x", 6, 1), 9.0), sample(point("x", 6, 2), 2.0)]).unwrap();
    let (collected, samples) = fold(&array, &report);
    assert_eq!((collected.folded.added, collected.folded.known), (0, 1));
    assert_eq!(collected.folded.differing, [point("x", 6, 1)]);
    assert_eq!(samples[0].values["throughput_mbps"], 9.0);
}

/// A disk that is full when a result is written: the task fails, nothing lies under the result's name.
#[test]
fn a_result_that_cannot_be_written_is_not_there() {
    let directory = tempfile::tempdir().unwrap();
    let array = Array::plan(directory.path(), &simulated(1)).unwrap();
    // A directory in its place refuses the rename, as the last step of all.
    fs::create_dir(array.path_of_result(1)).unwrap();
    let said = run(&array, 1, &good, &NEVER).unwrap_err().to_string();
    assert!(said.contains("results/1.json: "), "{said}");
    assert_eq!(names(&array.results()), ["1.json"], "no half of a file is left beside it");
    assert_eq!(array.missing(None), [1]);
}

#[test]
fn work_of_figures_has_the_points_of_a_run_and_the_loads_of_its_papers() {
    let papers = Paper::all();
    let selected = Paper::select(&papers, &["willmann.fig2".to_owned(), "nahum.machines".to_owned()]).unwrap();
    let host = lab::machine::Probe::start().finish();
    let plan = Plan::new(&selected, &Place::ALL, Effort::QUICK, &host).unwrap();
    let all = work(&selected, &Place::ALL, Effort::QUICK).unwrap();
    let (simulated, loads) = all.split_at(plan.simulated.len());
    assert!(simulated.iter().zip(&plan.simulated).all(|(work, point)| *work == Work::Simulated(point.clone())));
    assert_eq!(loads.len(), plan.host.len());
    for (work, load) in loads.iter().zip(&plan.host) {
        let Work::Host(of) = work else { panic!("{work}") };
        assert_eq!((of.paper.as_str(), of.first, of.last, &of.on(&host).unwrap()), ("willmann", 1, 3, load));
    }
    assert_eq!(work(&selected, &[Place::Host], Effort::QUICK).unwrap(), loads);
}

fn load(paper: &str, load: u32, last: u64) -> Work {
    Work::Host(LoadOfHost { paper: paper.to_owned(), load: named(paper, load), full: false, first: 1, last })
}

/// Bytes of a frame for the bridges of NetBSD, connections otherwise.
fn named(paper: &str, load: u32) -> LoadName {
    LoadName::new(if paper == "netbsd" { Axis::FrameBytes } else { Axis::Connections }, load)
}

#[test]
fn more_rounds_of_a_load_are_a_further_task() {
    let directory = tempfile::tempdir().unwrap();
    Array::plan(directory.path(), &[load("willmann", 6, 2)]).unwrap();
    Array::plan(directory.path(), &[load("willmann", 6, 2), load("willmann", 192, 2)]).unwrap();
    let array = Array::plan(directory.path(), &[load("willmann", 6, 5), load("willmann", 6, 1)]).unwrap();
    let rounds = |task: &Task| match &task.work {
        Work::Host(load) => (load.load, load.first, load.last),
        Work::Simulated(_) => panic!("{}", task.work),
    };
    assert_eq!(
        array.tasks.iter().map(rounds).collect::<Vec<_>>(),
        [(6, 1, 2), (192, 1, 2), (6, 3, 5)].map(|(load, first, last)| (named("willmann", load), first, last))
    );
}

/// Bridges of this host for real: a task has all subjects, in the rounds that it was planned for.
#[test]
fn a_load_of_the_host_is_one_task() {
    let directory = tempfile::tempdir().unwrap();
    let work = [load("netbsd", 74, 1)];
    Array::plan(directory.path(), &work).unwrap();
    let array = Array::plan(directory.path(), &[load("netbsd", 74, 2)]).unwrap();
    let never = |_: &Point| -> Result<Option<Sample>, String> { panic!("it is not simulated") };
    assert_eq!(run(&array, 2, &never, &AtomicBool::new(true)), Ok(Ended::Stopped));
    let subjects = match &array.task(2).unwrap().work {
        Work::Host(load) => load.on(&lab::machine::Probe::start().finish()).unwrap().points.len(),
        Work::Simulated(_) => 0,
    };
    assert_eq!(run(&array, 2, &never, &NEVER), Ok(Ended::Measured(subjects)));
    let result = array.result(2).unwrap().unwrap();
    assert!(result.samples.iter().all(|sample| sample.point.seed == 2), "the second round");
    // A round that lacks a subject is not the result.
    let whole = serde_json::to_string(&result).unwrap();
    let mut less = result.clone();
    less.samples[0].point.seed = 3;
    fs::write(array.path_of_result(2), serde_json::to_string(&less).unwrap()).unwrap();
    assert_eq!(array.result(2).unwrap_err(), "its samples are not those of its task");
    fs::write(array.path_of_result(2), whole).unwrap();
    assert_eq!(array.missing(None), [1]);
    let unknown = LoadOfHost { paper: "netbsd".to_owned(), load: named("netbsd", 75), full: false, first: 1, last: 1 };
    assert!(unknown.on(&lab::machine::Probe::start().finish()).unwrap_err().contains("no subject of this load"));
}

mod scripts {
    use std::process::Command;

    use super::super::script::{MOST, parts, quoted, ranges, write};
    use super::*;

    #[test]
    fn numbers_are_lists_as_slurm_writes_them() {
        for (numbers, list) in [(&[][..], ""), (&[3], "3"), (&[1, 2], "1-2"), (&[1, 2, 3, 7, 9, 10], "1-3,7,9-10")] {
            assert_eq!(ranges(numbers), list);
        }
        for word in ["/a/b-c_d.sh", "/a b/it's", "", "$HOME"] {
            let output = Command::new("sh").args(["-c", &format!("printf %s {}", quoted(word))]).output().unwrap();
            assert_eq!(output.stdout, word.as_bytes(), "{word}");
        }
    }

    /// No index of an array is above what Slurm allows, and every task is in one script.
    #[test]
    fn a_script_is_for_one_kind_and_a_thousand_lines() {
        let directory = tempfile::tempdir().unwrap();
        Array::plan(directory.path(), &simulated(2)).unwrap();
        Array::plan(directory.path(), &[load("willmann", 6, 2), load("netbsd", 74, 2)]).unwrap();
        let array = Array::plan(directory.path(), &simulated(2 * MOST as u64)).unwrap();
        let all: Vec<usize> = (1..=array.len()).collect();
        let parts = parts(&array, &all);
        let seen: Vec<(String, usize, String)> = parts
            .iter()
            .map(|part| {
                let name = part.script.file_name().unwrap().to_str().unwrap();
                (name.to_owned(), part.offset, ranges(&part.indices))
            })
            .collect();
        let expected = [
            ("simulated-1.sh", 0, "1-2,5-1000"),
            ("host-1.sh", 0, "3-4"),
            ("simulated-2.sh", 1000, "1-1000"),
            ("simulated-3.sh", 2000, "1-2"),
        ];
        assert_eq!(seen, expected.map(|(name, offset, list)| (name.to_owned(), offset, list.to_owned())));
        assert!(parts[0].command().starts_with("sbatch --array=1-2,5-1000 /"), "{}", parts[0].command());
    }

    /// A shell runs a script as Slurm does, in a directory with a blank and a quote in its name.
    #[test]
    fn a_script_runs_its_task_with_its_program_or_another_one() {
        let directory = tempfile::tempdir().unwrap();
        let array = Array::plan(&directory.path().join("it's a dir"), &simulated(MOST as u64 + 2)).unwrap();
        let parts = parts(&array, &[MOST + 1, MOST + 2]);
        write(&array, &parts, Path::new("/bin/echo"), 7).unwrap();
        let text = fs::read_to_string(&parts[0].script).unwrap();
        assert!(text.contains("\n#SBATCH --array=1-2%7\n") && text.contains("\n#SBATCH --cpus-per-task=1\n"), "{text}");
        let shell = |index: Option<&str>, program: Option<&str>| {
            let mut command = Command::new("sh");
            command.arg(&parts[0].script).env_remove("SLURM_ARRAY_TASK_ID").env_remove("HEDDLE");
            command.envs(index.map(|index| ("SLURM_ARRAY_TASK_ID", index)));
            command.envs(program.map(|program| ("HEDDLE", program)));
            command.output().unwrap()
        };
        assert!(shell(Some("2"), None).status.success());
        let said = fs::read_to_string(array.log().join("1002.txt")).unwrap();
        assert_eq!(said, format!("paper task {} 1002\n", array.directory().display()));
        assert_eq!(shell(Some("2"), Some("/bin/false")).status.code(), Some(1));
        let none = shell(None, None);
        let error = String::from_utf8(none.stderr).unwrap();
        assert!(!none.status.success() && error.contains("submit this script with sbatch"), "{error}");
    }
}
