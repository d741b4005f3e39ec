//! Comments of duvet's form, found in sources and packet scripts.

use std::fs;
use std::path::{Path, PathBuf};

use super::Requirement;

/// The meaning of an annotation for the lines below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// They implement the requirement.
    Code,
    /// They test the requirement.
    Test,
}

/// One quotation of an RFC.
#[derive(Debug)]
pub struct Annotation {
    pub path: String,
    /// Line of the citation, from 1.
    pub line: usize,
    pub rfc: u32,
    pub section: String,
    pub kind: Kind,
    /// The quoted words, with white space folded.
    pub quotation: String,
    /// The place as shown on a page: the file, for a test with the function's name.
    pub place: String,
}

impl Annotation {
    /// Whether it quotes words of that requirement.
    pub fn quotes(&self, requirement: &Requirement) -> bool {
        self.section == requirement.section && fold(&requirement.quote).contains(&self.quotation)
    }
}

/// All annotations below `folders` of `root`, in the order of paths.
pub fn collect(root: &Path, folders: &[&str]) -> Result<Vec<Annotation>, String> {
    let mut all = Vec::new();
    for folder in folders {
        let mut paths = files(&root.join(folder), &["rs", "pkt"])?;
        paths.sort();
        for path in paths {
            let text =
                fs::read_to_string(&path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
            let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            all.extend(parse(&name, &text)?);
        }
    }
    Ok(all)
}

/// Files below `directory` with one of the extensions; none if there is no such directory.
pub fn files(directory: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries {
            let path = entry.map_err(|error| format!("{}: {error}", directory.display()))?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| extensions.iter().any(|wanted| e == *wanted)) {
                found.push(path);
            }
        }
    }
    Ok(found)
}

/// The annotations of one file.
pub fn parse(path: &str, text: &str) -> Result<Vec<Annotation>, String> {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let Some(target) = lines[at].strip_prefix("//= http") else {
            at += 1;
            continue;
        };
        let line = at + 1;
        let wrong =
            || format!("{path}:{line}: a citation has the form //= https://www.rfc-editor.org/rfc/rfcN#section-S");
        let (rfc, section) = cited(target).ok_or_else(wrong)?;
        at += 1;
        let mut kind = if path.ends_with(".pkt") { Kind::Test } else { Kind::Code };
        while let Some(word) = lines.get(at).and_then(|l| l.strip_prefix("//= type=")) {
            kind = match word.trim() {
                "test" => Kind::Test,
                "implementation" | "citation" => Kind::Code,
                other => return Err(format!("{path}:{}: unknown type `{other}`: test or implementation", at + 1)),
            };
            at += 1;
        }
        let mut words = Vec::new();
        while let Some(part) = lines.get(at).and_then(|l| l.strip_prefix("//#")) {
            words.push(part.trim());
            at += 1;
        }
        if words.is_empty() {
            return Err(format!(
                "{path}:{line}: the citation quotes nothing: lines //# with the RFC's words follow it"
            ));
        }
        let place = place(path, kind, &lines[at..]);
        found.push(Annotation {
            path: path.to_owned(),
            line,
            rfc,
            section,
            kind,
            quotation: fold(&words.join(" ")),
            place,
        });
    }
    Ok(found)
}

/// RFC and section of `s://www.rfc-editor.org/rfc/rfc9293#section-3.1`.
fn cited(target: &str) -> Option<(u32, String)> {
    let (page, section) = target.trim().split_once("#section-")?;
    let number = page.rsplit_once("/rfc")?.1;
    Some((number.parse().ok()?, section.to_owned()))
}

/// A test is named by the next function.
fn place(path: &str, kind: Kind, following: &[&str]) -> String {
    let name = |line: &&str| {
        let after = line.strip_prefix("fn ").or_else(|| line.strip_prefix("pub fn "))?;
        after.split(['(', '<']).next().map(str::to_owned)
    };
    match following.iter().find_map(name) {
        Some(function) if kind == Kind::Test && !path.ends_with(".pkt") => format!("{path} {function}"),
        _ => path.to_owned(),
    }
}

/// Folds every run of white space to one blank.
fn fold(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_named_by_its_function_and_a_script_by_its_file() {
        let text = "  //= https://www.rfc-editor.org/rfc/rfc5961#section-3.2\n  //= type=test\n  //# silently\n#[test]\nfn out_of_window(x: u8) {}\n";
        let [annotation] = &parse("t.rs", text).unwrap()[..] else { panic!("one annotation") };
        assert_eq!((annotation.rfc, annotation.section.as_str(), annotation.kind), (5961, "3.2", Kind::Test));
        assert_eq!(annotation.place, "t.rs out_of_window");
        let script =
            parse("a.pkt", "//= https://www.rfc-editor.org/rfc/rfc5961#section-3.2\n//# silently\n+0 ...\n").unwrap();
        assert_eq!((script[0].kind, script[0].place.as_str()), (Kind::Test, "a.pkt"));
    }

    #[test]
    fn a_citation_without_words_or_section_is_refused() {
        assert!(parse("a.rs", "//= https://www.rfc-editor.org/rfc/rfc5961#section-3.2\nfn f() {}").is_err());
        assert!(parse("a.rs", "//= https://www.rfc-editor.org/rfc/rfc5961\n//# silently").is_err());
    }
}
