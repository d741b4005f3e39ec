//! The public interface of the library `heddle`, one item per line, compared with `docs/api.txt`: a reviewer sees a
//! change of the interface as a change of that file.
//!
//! rustdoc describes each of our crates as JSON, in the format of the pinned toolchain (`RUSTC_BOOTSTRAP` enables that
//! in a stable rustdoc). [`surface`] walks from the root of `heddle` through its modules and re-exports, across crates;
//! [`signature`] writes items as Rust does. What may never happen: a signature with a type of an inner crate that no
//! path of `heddle` names. Then a user could have a value without being able to write its type, and the inner crate
//! would effectively be public.

mod description;
mod examples;
mod signature;
mod surface;

use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;

use crate::metadata;
use description::Crates;

/// The library.
const LIBRARY: &str = "heddle";
/// The snapshot of its interface.
const SNAPSHOT: &str = "docs/api.txt";
const REMEDY: &str = "If that is meant, `cargo xtask api --bless` writes docs/api.txt, and the commit says why";

/// Fails if the interface differs from the snapshot.
pub fn check() -> Result<(), String> {
    let now = list()?;
    let path = metadata::root().join(SNAPSHOT);
    let then = fs::read_to_string(&path).map_err(|error| format!("{SNAPSHOT}: {error}. {REMEDY}"))?;
    match difference(&then, &now) {
        None => {
            println!("The interface of {LIBRARY} is as in {SNAPSHOT}: {} items.", now.lines().count());
            Ok(())
        }
        Some(difference) => Err(format!("the interface of {LIBRARY} is not as in {SNAPSHOT}:\n{difference}{REMEDY}")),
    }
}

/// Writes the snapshot.
pub fn bless() -> Result<(), String> {
    fs::write(metadata::root().join(SNAPSHOT), list()?).map_err(|error| format!("{SNAPSHOT}: {error}"))
}

/// Removed lines, with a minus, and new lines, with a plus; `None`: no difference.
fn difference(then: &str, now: &str) -> Option<String> {
    let (old, new): (BTreeSet<&str>, BTreeSet<&str>) = (then.lines().collect(), now.lines().collect());
    let gone = old.difference(&new).map(|line| format!("- {line}\n"));
    let added = new.difference(&old).map(|line| format!("+ {line}\n"));
    let text: String = gone.chain(added).collect();
    (!text.is_empty()).then_some(text)
}

/// The interface, one item a line, sorted.
fn list() -> Result<String, String> {
    let packages = behind()?;
    describe(&packages)?;
    let names: Vec<String> = packages.iter().map(|package| crate_name(package)).collect();
    let directory = metadata::target_directory()?.join("doc");
    let crates = Crates::read(&directory, &names)?;
    let without = examples::missing(&crates, &surface::named(&crates, LIBRARY).0, LIBRARY);
    if !without.is_empty() {
        return Err(format!("of {LIBRARY} these have no example in their documentation: {}", without.join(", ")));
    }
    let (lines, unnamed) = surface::list(&crates, LIBRARY);
    if unnamed.is_empty() {
        return Ok(lines.into_iter().map(|line| line + "\n").collect());
    }
    let unnamed: String = unnamed.iter().map(|line| format!("  {line}\n")).collect();
    Err(format!(
        "signatures of {LIBRARY} show types that no path of it names:\n{unnamed}Re-export each with its docs, or keep it out of the signature"
    ))
}

/// The library and our packages that it depends on.
fn behind() -> Result<Vec<String>, String> {
    let packages = metadata::packages()?;
    let mut found = vec![LIBRARY.to_owned()];
    let mut next = 0;
    while let Some(name) = found.get(next).cloned() {
        next += 1;
        let package = packages.iter().find(|package| package.name == name);
        for room in package.into_iter().flat_map(|package| &package.inside) {
            let behind = packages.iter().find(|package| package.room == *room).map(|package| package.name.clone());
            found.extend(behind.filter(|name| !found.contains(name)));
        }
    }
    Ok(found)
}

/// The name of a package's library in paths.
fn crate_name(package: &str) -> String {
    package.strip_prefix("heddle-").unwrap_or(package).replace('-', "_")
}

/// Runs rustdoc on the libraries, with all features of the first.
fn describe(packages: &[String]) -> Result<(), String> {
    let mut command = metadata::cargo();
    command.current_dir(metadata::root()).args(["doc", "--quiet", "--locked", "--no-deps", "--lib"]);
    packages.iter().for_each(|package| {
        command.args(["--package", package]);
    });
    let ours = metadata::packages()?;
    let library = ours.iter().find(|package| package.name == LIBRARY);
    let features = library.into_iter().flat_map(|package| &package.features).filter(|feature| *feature != "default");
    let features: Vec<String> = features.map(|feature| format!("{LIBRARY}/{feature}")).collect();
    command.args(["--features", &features.join(",")]);
    command.env("RUSTC_BOOTSTRAP", "1").env("RUSTDOCFLAGS", "-Z unstable-options --output-format json");
    let status = command.stdout(Stdio::null()).status().map_err(|error| format!("cannot run cargo doc: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("cargo doc ended with {status}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_what_is_gone_and_what_is_new() {
        assert_eq!(difference("fn a()\nfn b()\n", "fn b()\nfn a()\n"), None);
        let text = difference("fn a()\nfn b()\n", "fn a(x: u8)\nfn b()\n");
        assert_eq!(text.as_deref(), Some("- fn a()\n+ fn a(x: u8)\n"));
    }

    #[test]
    fn a_crate_is_named_as_in_paths() {
        assert_eq!((crate_name("heddle-dev-tap"), crate_name("heddle")), ("dev_tap".to_owned(), "heddle".to_owned()));
    }
}
