//! The recorded part of `docs/architectures`: a picture for each family, and what each variant takes for a segment and a
//! write. The rest of a family's page is written by hand.

use std::fmt::Write as _;

use heddle::ALL_ARCHITECTURES;
use stack::Architecture;
use sync::walk::WalkStep;

use super::picture::{Walked, draw};
use super::walk::{Walk, walk};

const BEGIN: &str = "<!-- recorded: written by UPDATE_SNAPSHOTS=1 cargo test -p heddle --test walkthrough -->\n";
const END: &str = "<!-- end of recorded -->\n";

/// A file below `docs`, and what it should contain.
pub struct File {
    /// `architectures/up.md`
    pub path: String,
    /// Its contents, made from the present ones.
    pub expected: Box<dyn Fn(&str) -> String>,
}

/// The pages and pictures of all families, and the index.
pub fn files() -> Vec<File> {
    let mut families: Vec<&str> = Vec::new();
    for name in ALL_ARCHITECTURES {
        let family = Architecture::named(name).family();
        if !families.contains(&family) {
            families.push(family);
        }
    }
    let mut files = Vec::new();
    let mut index = String::from(HEAD);
    for family in families {
        let names: Vec<&str> =
            ALL_ARCHITECTURES.into_iter().filter(|name| Architecture::named(name).family() == family).collect();
        let rows: String = names.iter().map(|name| row(&format!("`{name}`"), &walk(name))).collect();
        for (name, line) in names.iter().zip(rows.lines()) {
            let _ = writeln!(
                index,
                "{}",
                line.replacen(&format!("`{name}`"), &format!("[`{name}`]({DIRECTORY}{family}.md)"), 1)
            );
        }
        let shown = Architecture::named(family).to_string();
        let about = format!("One segment and one write under {shown}: threads, locks and messages");
        let recorded = format!("![{about}]({family}.svg)\n\n{HEAD}{rows}");
        files.push(between_markers(format!("{DIRECTORY}{family}.md"), recorded));
        files.push(File {
            path: format!("{DIRECTORY}{family}.svg"),
            expected: Box::new(move |_| picture(&about, &walk(&shown))),
        });
    }
    files.push(between_markers("architectures.md".to_owned(), index));
    files
}

const DIRECTORY: &str = "architectures/";
const HEAD: &str = "| | a segment: locks | messages | a write: locks | messages, answers |\n|---|---|---|---|---|\n";

fn between_markers(path: String, recorded: String) -> File {
    let expected = move |present: &str| {
        let parts = present.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
        let Some((before, after)) = parts else { return format!("{BEGIN}\n{recorded}\n{END}") };
        format!("{before}{BEGIN}\n{recorded}\n{END}{after}")
    };
    File { path, expected: Box::new(expected) }
}

fn picture(about: &str, Walk { received, written }: &Walk) -> String {
    let walks = [
        Walked { title: "A data segment arrives", thread: "a receive thread", steps: received },
        Walked { title: "A write of 100 bytes", thread: "the caller", steps: written },
    ];
    draw(about, &walks)
}

/// The row of a table: the locks taken, by class, and the messages to other threads.
fn row(name: &str, Walk { received, written }: &Walk) -> String {
    let count = |steps: &[WalkStep], step: WalkStep| steps.iter().filter(|other| **other == step).count();
    let messages = |steps: &[WalkStep]| count(steps, WalkStep::HandOff);
    format!(
        "| {name} | {} | {} | {} | {}, {} |\n",
        locks(received),
        messages(received),
        locks(written),
        messages(written),
        count(written, WalkStep::Answer),
    )
}

/// `3: group, device-tx (2)`
fn locks(steps: &[WalkStep]) -> String {
    let mut classes: Vec<(String, usize)> = Vec::new();
    for step in steps {
        let WalkStep::Take(class) = step else { continue };
        match classes.iter_mut().find(|(name, _)| *name == class.to_string()) {
            Some((_, times)) => *times += 1,
            None => classes.push((class.to_string(), 1)),
        }
    }
    let all: usize = classes.iter().map(|(_, times)| times).sum();
    if all == 0 {
        return "none".to_owned();
    }
    let names: Vec<String> = classes
        .iter()
        .map(|(name, times)| if *times == 1 { name.clone() } else { format!("{name} ({times})") })
        .collect();
    format!("{all}: {}", names.join(", "))
}
