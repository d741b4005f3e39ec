//! A workspace of the libraries as they were packed, to build them in.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use toml::{Table, Value};

use crate::metadata;

/// A packed library: its name, and the directory into which it is unpacked.
pub(super) struct Packed {
    pub name: String,
    pub directory: String,
}

/// Unpacks the libraries from `packed`, where cargo has put them, into a new workspace with the profiles and the lock file
/// of this one. Returns its manifest.
pub(super) fn workspace(libraries: &[Packed], packed: &Path) -> Result<PathBuf, String> {
    let (workspace, root) = (packed.join("unpacked"), metadata::root());
    let failed = |error: std::io::Error| format!("a workspace at {}: {error}", workspace.display());
    if workspace.exists() {
        fs::remove_dir_all(&workspace).map_err(failed)?;
    }
    fs::create_dir_all(&workspace).map_err(failed)?;
    for library in libraries {
        unpack(&packed.join(format!("{}.crate", library.directory)), &workspace)?;
    }
    let manifest = workspace.join("Cargo.toml");
    let like = fs::read_to_string(root.join("Cargo.toml")).map_err(failed)?;
    fs::write(&manifest, manifest_of(libraries, &like)?).map_err(failed)?;
    fs::copy(root.join("Cargo.lock"), workspace.join("Cargo.lock")).map_err(failed)?;
    Ok(manifest)
}

/// cargo gives all packed files one date, so that a file that has changed would count as built: they get today's.
fn unpack(archive: &Path, into: &Path) -> Result<(), String> {
    let mut tar = Command::new("tar");
    tar.current_dir(into).args(["--extract", "--gzip", "--touch", "--file"]).arg(archive);
    if tar.status().is_ok_and(|status| status.success()) {
        return Ok(());
    }
    Err(format!("cannot unpack {} with tar", archive.display()))
}

/// The manifest of a workspace in which these libraries take the place of those of the registry, with the resolver and the
/// profiles of the workspace that has the manifest `like`. The libraries themselves are not optimized.
fn manifest_of(libraries: &[Packed], like: &str) -> Result<String, String> {
    let mut like: Table = like.parse().map_err(|error| format!("Cargo.toml: {error}"))?;
    let each = |value: &dyn Fn(&str) -> Table| {
        let values = libraries.iter().map(|library| (library.name.clone(), value(&library.directory).into()));
        Value::Table(values.collect())
    };
    let one = |key: &str, value: Value| Table::from_iter([(key.to_owned(), value)]);
    let members = libraries.iter().map(|library| library.directory.clone().into()).collect();
    let mut workspace = one("members", Value::Array(members));
    workspace
        .extend(like.get("workspace").and_then(|old| old.get("resolver")).map(|old| ("resolver".into(), old.clone())));
    let mut profiles = like.remove("profile").and_then(|old| old.as_table().cloned()).unwrap_or_default();
    let dev = profiles.entry("dev").or_insert(Table::new().into());
    if let Some(dev) = dev.as_table_mut() {
        dev.insert("package".to_owned(), each(&|_| one("opt-level", 0.into())));
    }
    let patch = one("crates-io", each(&|directory| one("path", directory.into())));
    let parts = [("workspace", workspace), ("patch", patch), ("profile", profiles)];
    Ok(Table::from_iter(parts.map(|(key, part)| (key.to_owned(), part.into()))).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_built_with_each_other_and_others_as_here() {
        let like =
            "[workspace]\nresolver = '3'\nmembers = ['crates/*']\n[profile.dev]\nopt-level = 1\n[workspace.package]\n";
        let libraries = ["heddle-ip", "heddle"];
        let libraries = libraries.map(|name| Packed { name: name.to_owned(), directory: format!("{name}-0.1.0") });
        let expected = toml::toml! {
            [workspace]
            members = ["heddle-ip-0.1.0", "heddle-0.1.0"]
            resolver = "3"
            [patch.crates-io]
            heddle = { path = "heddle-0.1.0" }
            heddle-ip = { path = "heddle-ip-0.1.0" }
            [profile.dev]
            opt-level = 1
            [profile.dev.package]
            heddle = { opt-level = 0 }
            heddle-ip = { opt-level = 0 }
        };
        assert_eq!(manifest_of(&libraries, like).expect("TOML").parse::<Table>(), Ok(expected));
    }
}
