//! `cargo xtask deps`: imports between rooms go to smaller numbers only, and each one must be listed.
//!
//! The committed list `xtask/deps.txt` gives every crate its room number and every edge it may have, inside the
//! workspace and out of it. The check fails on an edge that goes up or sideways, on one that is not in the list, and on
//! a listed one that no longer exists (or it could return unnoticed). Dev-dependencies are exempt: tests may depend on
//! any crate below.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use crate::metadata::{self, Package};

const HEAD: &str = "\
# The rooms of the house and every edge between them: `room crate: crates of the workspace | crates from elsewhere`.
# Checked by `cargo xtask deps`, rewritten by `cargo xtask deps --bless`. Room numbers are changed by hand.
";

/// A room number, `3` or `3.1`: a back-end is in the room of its trait and may import it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Room(u8, u8);

impl std::str::FromStr for Room {
    type Err = String;
    fn from_str(text: &str) -> Result<Room, String> {
        let number = |part: &str| part.parse().map_err(|_| format!("{text:?} is not a room number such as 3 or 3.1"));
        match text.split_once('.') {
            Some((room, alcove)) => Ok(Room(number(room)?, number(alcove)?)),
            None => Ok(Room(number(text)?, 0)),
        }
    }
}

impl std::fmt::Display for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&if self.1 == 0 { self.0.to_string() } else { format!("{}.{}", self.0, self.1) })
    }
}

/// One line of the list.
struct Entry {
    room: Room,
    inside: BTreeSet<String>,
    outside: BTreeSet<String>,
}

type List = BTreeMap<String, Entry>;

fn path() -> PathBuf {
    metadata::root().join("xtask/deps.txt")
}

fn read() -> Result<List, String> {
    let path = path();
    let text = fs::read_to_string(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    parse(&text)
}

fn parse(text: &str) -> Result<List, String> {
    let mut list = List::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        let malformed = || format!("xtask/deps.txt: {line:?} is not `room crate: crates | crates`");
        let (head, edges) = line.split_once(':').ok_or_else(malformed)?;
        let (room, name) = head.trim().split_once(' ').ok_or_else(malformed)?;
        let (inside, outside) = edges.split_once('|').unwrap_or((edges, ""));
        let words = |part: &str| part.split_whitespace().map(str::to_owned).collect();
        let entry = Entry { room: room.parse()?, inside: words(inside), outside: words(outside) };
        if list.insert(name.trim().to_owned(), entry).is_some() {
            return Err(format!("xtask/deps.txt: {} is there twice", name.trim()));
        }
    }
    Ok(list)
}

/// Edges that go up or sideways, and crates without a room: wrong even if listed.
fn misplaced(packages: &[Package], list: &List) -> Vec<String> {
    let mut wrong = Vec::new();
    for package in packages {
        let Some(entry) = list.get(&package.room) else {
            wrong.push(format!("{} has no room: add a line `ROOM {}:` to xtask/deps.txt", package.name, package.room));
            continue;
        };
        for to in &package.inside {
            if let Some(target) = list.get(to).filter(|target| target.room >= entry.room) {
                wrong.push(format!(
                    "{} (room {}) imports {to} (room {}): imports go to smaller numbers only; move the shared part down",
                    package.room, entry.room, target.room
                ));
            }
        }
    }
    wrong
}

/// Differences between the actual and the listed edges.
fn unlisted(packages: &[Package], list: &List) -> Vec<String> {
    let mut wrong = Vec::new();
    for package in packages {
        let Some(entry) = list.get(&package.room) else { continue };
        for (are, listed) in [(&package.inside, &entry.inside), (&package.outside, &entry.outside)] {
            let new = are.difference(listed).map(|to| format!("{} imports {to}, a new edge", package.room));
            let gone = listed.difference(are).map(|to| format!("{} no longer imports {to}", package.room));
            wrong.extend(new.chain(gone));
        }
    }
    let gone = list.keys().filter(|name| packages.iter().all(|package| package.room != **name));
    wrong.extend(gone.map(|name| format!("{name} is listed and does not exist")));
    wrong
}

/// Lines of the table, or of the list: the same text serves both.
fn lines(packages: &[Package], list: &List) -> Vec<String> {
    let mut rows: Vec<(Room, &Package)> =
        packages.iter().filter_map(|package| Some((list.get(&package.room)?.room, package))).collect();
    rows.sort_by(|(a, p), (b, q)| (a, &p.room).cmp(&(b, &q.room)));
    rows.iter()
        .map(|(room, package)| {
            let join = |names: &BTreeSet<String>| names.iter().map(|name| format!(" {name}")).collect::<String>();
            let outside =
                if package.outside.is_empty() { String::new() } else { format!(" |{}", join(&package.outside)) };
            format!("{room:<3} {}:{}{outside}", package.room, join(&package.inside))
        })
        .collect()
}

fn report(wrong: &[String], remedy: &str) -> Result<(), String> {
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!("{}\n{remedy}", wrong.join("\n")))
}

/// Prints the table and fails on a wrong edge.
pub fn check() -> Result<(), String> {
    let (packages, list) = (metadata::packages()?, read()?);
    lines(&packages, &list).iter().for_each(|line| println!("{line}"));
    report(&misplaced(&packages, &list), "No list can allow this.")?;
    report(
        &unlisted(&packages, &list),
        "If that is meant, run `cargo xtask deps --bless` and say why in the commit message.",
    )
}

/// Writes the actual edges, unless one goes up.
pub fn bless() -> Result<(), String> {
    let (packages, list) = (metadata::packages()?, read()?);
    report(&misplaced(&packages, &list), "Nothing was written.")?;
    let text = format!("{HEAD}\n{}\n", lines(&packages, &list).join("\n"));
    fs::write(path(), text).map_err(|error| format!("cannot write {}: {error}", path().display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(room: &str, inside: &[&str], outside: &[&str]) -> Package {
        let set = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        let name = format!("heddle-{room}");
        Package {
            room: room.into(),
            name,
            inside: set(inside),
            outside: set(outside),
            features: BTreeSet::new(),
            tests_of_features: vec![],
        }
    }

    const LIST: &str = "# comment\n\n0   wire: | zerocopy\n3   dev: wire\n3.1 dev-tap: dev wire | libc\n";

    fn house() -> Vec<Package> {
        vec![
            package("dev", &["wire"], &[]),
            package("dev-tap", &["dev", "wire"], &["libc"]),
            package("wire", &[], &["zerocopy"]),
        ]
    }

    #[test]
    fn a_house_in_order_passes() {
        let list = parse(LIST).unwrap();
        assert!(misplaced(&house(), &list).is_empty() && unlisted(&house(), &list).is_empty());
        assert_eq!(parse(&lines(&house(), &list).join("\n")).unwrap().len(), 3);
        assert_eq!(lines(&house(), &list).join("\n"), LIST.split_once("\n\n").unwrap().1.trim_end());
    }

    #[test]
    fn an_edge_up_or_sideways_is_refused() {
        let list = parse(LIST).unwrap();
        let up = [package("wire", &["dev"], &[])];
        assert!(misplaced(&up, &list)[0].contains("wire (room 0) imports dev (room 3)"));
        let sideways = [package("dev", &["dev"], &[])];
        assert_eq!(misplaced(&sideways, &list).len(), 1);
    }

    #[test]
    fn a_crate_without_a_room_is_refused() {
        let homeless = [package("attic", &[], &[])];
        assert!(misplaced(&homeless, &parse(LIST).unwrap())[0].contains("heddle-attic has no room"));
    }

    #[test]
    fn new_and_vanished_edges_are_told() {
        let list = parse(LIST).unwrap();
        let mut house = house();
        house[0].outside.insert("libc".into());
        house[1].inside.remove("wire");
        let wrong = unlisted(&house[..2], &list);
        let expected =
            ["dev imports libc, a new edge", "dev-tap no longer imports wire", "wire is listed and does not exist"];
        assert_eq!(wrong, expected);
    }

    #[test]
    fn a_malformed_list_is_an_error() {
        for text in ["wire", "x wire:", "0 wire:\n0 wire:", "0wire:"] {
            assert!(parse(text).is_err(), "{text:?} was accepted");
        }
    }
}
