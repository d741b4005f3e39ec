//! Cargo's metadata of the workspace, reduced to the fields that the tasks use, and the files that git tracks.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

/// One package of the workspace.
pub struct Package {
    /// The name without `heddle-`: the name of its room.
    pub room: String,
    /// The package's name.
    pub name: String,
    /// Rooms that it depends on, dev-dependencies left out.
    pub inside: BTreeSet<String>,
    /// Packages from elsewhere that it depends on, dev-dependencies left out.
    pub outside: BTreeSet<String>,
    /// Its cargo features.
    pub features: BTreeSet<String>,
    /// Its integration tests that need a feature to be built, and these features.
    pub tests_of_features: Vec<(String, BTreeSet<String>)>,
}

/// The cargo that runs this program, or the one on the path.
pub fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// The root of the workspace.
pub fn root() -> PathBuf {
    let xtask = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().map(PathBuf::from).unwrap_or(xtask)
}

/// The paths of all files that git tracks, from the root.
pub fn tracked() -> Result<Vec<String>, String> {
    let listed = Command::new("git").current_dir(root()).arg("ls-files").output();
    let listed = listed.map_err(|error| format!("cannot run git ls-files: {error}"))?;
    Ok(String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect())
}

/// All packages of the workspace, by name.
pub fn packages() -> Result<Vec<Package>, String> {
    Ok(parse(&read(&["--no-deps"])?))
}

/// All packages of the workspace, with their complete metadata.
pub fn ours() -> Result<Vec<Value>, String> {
    Ok(array(&read(&["--no-deps"])?["packages"]).to_vec())
}

/// Cargo's target directory.
pub fn target_directory() -> Result<PathBuf, String> {
    Ok(PathBuf::from(text(&read(&["--no-deps"])?["target_directory"])))
}

/// Every package of the lock file with its manifest, ours included.
pub fn everything() -> Result<Vec<Value>, String> {
    Ok(array(&read(&["--locked", "--all-features"])?["packages"]).to_vec())
}

fn read(options: &[&str]) -> Result<Value, String> {
    let output = cargo()
        .current_dir(root())
        .args(["metadata", "--format-version=1"])
        .args(options)
        .output()
        .map_err(|error| format!("cannot run cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata failed:\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata is not JSON: {error}"))
}

fn room(package: &str) -> &str {
    package.strip_prefix("heddle-").unwrap_or(package)
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn parse(metadata: &Value) -> Vec<Package> {
    let packages = array(&metadata["packages"]);
    let is_ours = |name: &str| packages.iter().any(|package| text(&package["name"]) == name);
    let mut parsed: Vec<Package> = packages
        .iter()
        .map(|package| {
            let name = text(&package["name"]);
            let kept = array(&package["dependencies"]).iter().filter(|d| text(&d["kind"]) != "dev");
            let (inside, outside): (Vec<&str>, Vec<&str>) = kept.map(|d| text(&d["name"])).partition(|d| is_ours(d));
            Package {
                room: room(name).to_owned(),
                name: name.to_owned(),
                inside: inside.into_iter().map(|d| room(d).to_owned()).collect(),
                outside: outside.into_iter().map(str::to_owned).collect(),
                features: package["features"].as_object().map(|f| f.keys().cloned().collect()).unwrap_or_default(),
                tests_of_features: array(&package["targets"]).iter().filter_map(test_of_features).collect(),
            }
        })
        .collect();
    parsed.sort_by(|a, b| a.name.cmp(&b.name));
    parsed
}

/// The name of a target, if it is a test that needs features, and these.
fn test_of_features(target: &Value) -> Option<(String, BTreeSet<String>)> {
    let is_test = array(&target["kind"]).iter().any(|kind| text(kind) == "test");
    let needed: BTreeSet<String> = array(&target["required-features"]).iter().map(|f| text(f).to_owned()).collect();
    (is_test && !needed.is_empty()).then(|| (text(&target["name"]).to_owned(), needed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dev_dependencies_are_left_out_and_others_sorted_into_ours_and_theirs() {
        let metadata = serde_json::json!({"packages": [
            {"name": "heddle-a", "features": {"loom": []}, "targets": [
                {"name": "loom", "kind": ["test"], "required-features": ["loom"]}, {"name": "a", "kind": ["lib"]},
                {"name": "plain", "kind": ["test"]}, {"name": "bench", "kind": ["bench"], "required-features": ["loom"]}],
             "dependencies": [
                {"name": "heddle-b", "kind": null}, {"name": "libc", "kind": "build"},
                {"name": "proptest", "kind": "dev"}, {"name": "heddle-a", "kind": "dev"}]},
            {"name": "heddle-b", "features": {}, "dependencies": []},
        ]});
        let packages = parse(&metadata);
        assert_eq!((packages[0].room.as_str(), packages[0].name.as_str()), ("a", "heddle-a"));
        assert_eq!(packages[0].inside, BTreeSet::from(["b".to_owned()]));
        assert_eq!(packages[0].outside, BTreeSet::from(["libc".to_owned()]));
        assert!(packages[0].features.contains("loom") && packages[1].inside.is_empty());
        let loom = ("loom".to_owned(), BTreeSet::from(["loom".to_owned()]));
        assert_eq!((&packages[0].tests_of_features[..], packages[1].tests_of_features.len()), (&[loom][..], 0));
    }

    #[test]
    fn this_workspace_can_be_read() {
        let packages = packages().unwrap();
        let xtask = packages.iter().find(|p| p.room == "xtask").unwrap();
        assert!(xtask.outside.contains("serde_json"), "its own manifest says so");
    }
}
