//! Publication of the libraries: the required fields of each manifest, the order, that cargo packs them, and that they build
//! from what was packed.
//!
//! Only the packages in [`ROOTS`] and their dependencies are published. cargo packs them without the network. They are
//! then unpacked into a workspace of their own, and built there with the workspace's target directory, so that packages
//! from elsewhere are not built again. cargo's own verification is not used: it unpacks each version of a library once
//! for all, and builds its users against the library as it was when that version was first verified.
//!
//! What may never happen: a published library that needs an unpublished one, or a file that was not packed.

mod unpacked;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::metadata;
use unpacked::Packed;

/// The libraries that users depend on.
const ROOTS: [&str; 6] = ["heddle", "heddle-posix", "heddle-bridge", "heddle-xdr", "heddle-xdr-build", "heddle-asx"];

/// Fields of a package that a registry shows, by their names in `cargo metadata`.
const SHOWN: [&str; 6] = ["description", "license", "readme", "keywords", "categories", "rust_version"];

/// The texts that both licences require, in the directory of each package.
const LICENCES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];

/// The libraries, each after those that it needs. An error has a line for each mistake in a manifest.
pub fn order() -> Result<Vec<String>, String> {
    let packages = metadata::ours()?;
    let complaints = complaints(&packages, |directory, file| directory.join(file).is_file());
    if !complaints.is_empty() {
        return Err(complaints.join("\n"));
    }
    Ok(libraries(&packages))
}

/// The arguments with which cargo packs `packages`.
pub fn arguments(packages: &[String]) -> Vec<&str> {
    let pack = ["package", "--quiet", "--locked", "--offline", "--no-verify", "--allow-dirty"];
    let chosen = packages.iter().flat_map(|package| ["--package", package.as_str()]);
    pack.into_iter().chain(chosen).collect()
}

/// Unpacks what cargo has packed into a new workspace, in which it can be built. Returns its manifest.
pub fn unpack(packages: &[String]) -> Result<PathBuf, String> {
    let ours = metadata::ours()?;
    let ours = ours.iter().map(|package| (text(&package["name"]), text(&package["version"])));
    let libraries = ours.filter(|(name, _)| packages.iter().any(|package| package == name));
    let libraries =
        libraries.map(|(name, version)| Packed { name: name.to_owned(), directory: format!("{name}-{version}") });
    unpacked::workspace(&libraries.collect::<Vec<_>>(), &metadata::target_directory()?.join("package"))
}

/// The packages in [`ROOTS`] and all of ours that they need, each after those that it needs.
fn libraries(packages: &[Value]) -> Vec<String> {
    fn visit(packages: &[Value], name: &str, found: &mut Vec<String>) {
        let package = packages.iter().find(|package| package["name"] == name);
        if let Some(package) = package.filter(|_| !found.iter().any(|other| other == name)) {
            needs(package).for_each(|needed| visit(packages, text(&needed["name"]), found));
            found.push(name.to_owned());
        }
    }
    let mut found = Vec::new();
    ROOTS.iter().for_each(|root| visit(packages, root, &mut found));
    found
}

fn complaints(packages: &[Value], has_file: impl Fn(&Path, &str) -> bool) -> Vec<String> {
    let libraries: BTreeSet<String> = libraries(packages).into_iter().collect();
    let mut complaints = Vec::new();
    for package in packages {
        let name = text(&package["name"]);
        match (libraries.contains(name), is_published(package)) {
            (false, false) => {}
            (false, true) => complaints.push(format!(
                "{name} would be published, and no library needs it: write `publish.workspace = true` into its manifest"
            )),
            (true, false) => complaints.push(format!(
                "a library needs {name}, which would not be published: take `publish.workspace = true` out of its manifest"
            )),
            (true, true) => complaints.extend(incomplete(package, &libraries, &has_file)),
        }
    }
    complaints
}

/// The fields and files that a library lacks.
fn incomplete(package: &Value, libraries: &BTreeSet<String>, has_file: impl Fn(&Path, &str) -> bool) -> Vec<String> {
    let name = text(&package["name"]);
    let is_empty = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    let fields = SHOWN.iter().filter(|field| is_empty(&package[**field]));
    let mut found: Vec<String> = fields
        .map(|field| field.replace('_', "-"))
        .map(|field| format!("{name} has no {field}: give it one"))
        .collect();
    let directory = Path::new(text(&package["manifest_path"])).parent().unwrap_or(Path::new(""));
    let files = LICENCES.iter().filter(|file| !has_file(directory, file));
    found.extend(files.map(|file| format!("{name} has no {file}: link it to the one at the root")));
    for dependency in dependencies(package).filter(|dependency| !dependency["path"].is_null()) {
        let (needed, has_version) = (text(&dependency["name"]), text(&dependency["req"]) != "*");
        if libraries.contains(needed) != has_version {
            let remedy = if has_version { "take its version out" } else { "give it a version" };
            found.push(format!("{name} depends on {needed}: {remedy} in [workspace.dependencies]"));
        }
    }
    found
}

fn is_published(package: &Value) -> bool {
    // `publish = false` is an empty list of registries; without the line it is null.
    package["publish"].is_null()
}

/// All dependencies in a manifest, also for tests.
fn dependencies(package: &Value) -> impl Iterator<Item = &Value> {
    package["dependencies"].as_array().into_iter().flatten()
}

/// Dependencies of a package for its users, with any features.
fn needs(package: &Value) -> impl Iterator<Item = &Value> {
    dependencies(package).filter(|dependency| dependency["kind"] != "dev")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn library(name: &str, needs: Value) -> Value {
        json!({"name": name, "publish": null, "description": "a", "license": "MIT", "readme": "README.md", "keywords": ["a"],
            "rust_version": "1.91", "categories": ["a"], "manifest_path": "/a/Cargo.toml", "dependencies": needs})
    }

    fn on(name: &str, req: &str, kind: Value) -> Value {
        json!({"name": name, "req": req, "path": "/b", "kind": kind})
    }

    #[test]
    fn a_library_comes_behind_those_that_it_needs() {
        let heddle = library("heddle", json!([on("heddle-stack", "^0.1", Value::Null)]));
        let stack = library("heddle-stack", json!([on("heddle-wire", "^0.1", Value::Null)]));
        let packages = [heddle, library("heddle-posix", json!([])), library("heddle-wire", json!([])), stack];
        assert_eq!(libraries(&packages), ["heddle-wire", "heddle-stack", "heddle", "heddle-posix"]);
        assert_eq!(complaints(&packages, |_, _| true), [""; 0]);
    }

    #[test]
    fn each_mistake_in_a_manifest_is_named() {
        let needs = json!([on("heddle-tcp", "*", Value::Null), on("heddle-frames", "^0.1", json!("dev"))]);
        let mut heddle = library("heddle", needs);
        heddle["readme"] = Value::Null;
        let mut tcp = library("heddle-tcp", json!([]));
        tcp["publish"] = json!([]);
        let packages = [heddle, tcp, library("heddle-frames", json!([]))];
        let said = complaints(&packages, |_, file| file == "LICENSE-MIT");
        let begins = [
            "heddle has no readme",
            "heddle has no LICENSE-APACHE",
            "heddle depends on heddle-tcp: give it a version",
            "heddle depends on heddle-frames: take its version out",
            "a library needs heddle-tcp",
            "heddle-frames would be published",
        ];
        assert_eq!(said.len(), begins.len(), "{said:?}");
        assert!(said.iter().zip(begins).all(|(said, begin)| said.starts_with(begin)), "{said:?}");
    }
}
