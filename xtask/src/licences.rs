//! Licences and sources of dependencies, by the rules of `deny.toml`, without installed tools.
//!
//! `cargo deny` reads the same rules and checks more (texts of licences, duplicates, advisories); the step also runs it
//! if it is installed. The rules are checked even if it is not.

use serde_json::Value;
use spdx::{Expression, LicenseReq, ParseMode};

use crate::metadata;

/// The allowed source of crates: `[sources]` denies all others.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Returns the number of packages checked; an error names each that breaks a rule.
pub fn check() -> Result<usize, String> {
    let path = metadata::root().join("deny.toml");
    let rules = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let packages = metadata::everything()?;
    let complaints = complaints(&packages, &allowed(&rules)?);
    if complaints.is_empty() { Ok(packages.len()) } else { Err(complaints.join("\n")) }
}

/// The list `allow` in `[licenses]`.
fn allowed(rules: &str) -> Result<Vec<LicenseReq>, String> {
    let rules: toml::Table = rules.parse().map_err(|error| format!("deny.toml: {error}"))?;
    let list = rules.get("licenses").and_then(|licenses| licenses.get("allow")).and_then(toml::Value::as_array);
    let list = list.ok_or("deny.toml has no list `allow` in [licenses]")?;
    let requirement = |name: &toml::Value| {
        let name = name.as_str().unwrap_or_default();
        let expression = Expression::parse(name).map_err(|error| format!("deny.toml: {name:?}: {error}"))?;
        let mut requirements = expression.requirements();
        match (requirements.next(), requirements.next()) {
            (Some(only), None) => Ok(only.req.clone()),
            _ => Err(format!("deny.toml: {name:?} is not one licence")),
        }
    };
    list.iter().map(requirement).collect()
}

fn complaints(packages: &[Value], allowed: &[LicenseReq]) -> Vec<String> {
    packages.iter().filter_map(|package| complaint(package, allowed)).collect()
}

/// The fault of a package, in a sentence that names it.
fn complaint(package: &Value, allowed: &[LicenseReq]) -> Option<String> {
    let text = |field: &str| package[field].as_str();
    let name = format!("{} {}", text("name").unwrap_or("?"), text("version").unwrap_or("?"));
    // Packages of the workspace have no source.
    if let Some(source) = text("source").filter(|source| *source != CRATES_IO) {
        return Some(format!("{name} comes from {source}; only crates.io is allowed"));
    }
    let Some(licence) = text("license") else {
        return Some(format!("{name} names no licence in its manifest; look at it and choose another crate"));
    };
    match Expression::parse_mode(licence, ParseMode::LAX) {
        Ok(expression) if expression.evaluate(|wanted| allowed.contains(wanted)) => None,
        Ok(_) => Some(format!("{name} is under {licence:?}, which the list in deny.toml does not allow")),
        Err(error) => Some(format!("{name} is under {licence:?}, which is no licence expression: {}", error.reason)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(licence: &str, source: &str) -> Option<String> {
        let allowed = allowed("[licenses]\nallow = ['MIT', 'Apache-2.0', 'Apache-2.0 WITH LLVM-exception']").unwrap();
        let package = serde_json::json!({"name": "a", "version": "1.0.0", "license": licence, "source": source});
        complaint(&package, &allowed)
    }

    #[test]
    fn one_of_several_licences_is_enough_and_both_of_two_are_needed() {
        assert_eq!(judged("MIT OR GPL-3.0-only", CRATES_IO), None);
        assert_eq!(judged("MIT/Apache-2.0", CRATES_IO), None, "the old notation");
        assert_eq!(judged("Apache-2.0 WITH LLVM-exception", CRATES_IO), None);
        assert!(judged("MIT AND GPL-3.0-only", CRATES_IO).unwrap().contains("does not allow"));
        assert!(judged("none", CRATES_IO).unwrap().contains("no licence expression"));
    }

    #[test]
    fn a_source_that_is_not_the_registry_is_named() {
        let message = judged("MIT", "git+https://example.org/a#1").unwrap();
        assert_eq!(message, "a 1.0.0 comes from git+https://example.org/a#1; only crates.io is allowed");
    }

    #[test]
    fn a_package_without_a_licence_is_named() {
        let message = complaint(&serde_json::json!({"name": "a", "version": "1.0.0"}), &[]).unwrap();
        assert!(message.starts_with("a 1.0.0 names no licence"), "{message}");
    }

    #[test]
    fn everything_we_depend_on_is_seen() {
        let packages = metadata::everything().unwrap();
        assert!(packages.iter().any(|package| package["name"] == "spdx"), "what this file uses");
    }
}
