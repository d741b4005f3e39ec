//! `cargo xtask coverage`: where each requirement of the RFCs is implemented, and which test shows it.
//!
//! Requirements are in `conformance/requirements/*.toml`, in the RFC's words. Code and tests quote them in comments of
//! duvet's form, `//= URL#section-N` followed by lines `//# quotation`, with `//= type=test` between the two for a test
//! (or a packet script). This reads both, refuses a quotation that no requirement contains, and writes two pages:
//! `docs/rfc-coverage.md` and, for the table of RFC 9293's appendix B, `docs/rfc9293.md`. Committed pages that do not
//! match the comments fail the step, so coverage cannot fall unnoticed. It does not evaluate tests.

mod annotation;
mod page;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::metadata;
use annotation::{Annotation, Kind};

/// One file of `conformance/requirements`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Specification {
    /// The RFC's number.
    rfc: u32,
    /// The RFC's title.
    title: String,
    #[serde(rename = "requirement")]
    requirements: Vec<Requirement>,
}

/// One requirement in the RFC's words.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Requirement {
    /// The RFC's own label, or section and count.
    id: String,
    /// Its heading in the RFC's own table.
    #[serde(default)]
    group: String,
    /// Name in the RFC's own table.
    #[serde(default)]
    feature: String,
    section: String,
    level: Level,
    quote: String,
    /// Why it is not met, if that is intended.
    exception: Option<String>,
    /// The restriction under which it is not met, although met and shown otherwise: a profile, a family, a state.
    partly: Option<String>,
}

/// How strongly it is required; negations count as their level.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "UPPERCASE")]
enum Level {
    Must,
    Should,
    May,
}

/// Where a requirement is met and shown: files, and tests with their files.
#[derive(Default)]
struct Evidence {
    code: Vec<String>,
    tests: Vec<String>,
}

impl Evidence {
    fn is_shown(&self) -> bool {
        !self.code.is_empty() && !self.tests.is_empty()
    }
}

/// A requirement with its evidence.
struct Row<'a> {
    requirement: &'a Requirement,
    evidence: Evidence,
}

impl Row<'_> {
    /// Met without a restriction, and shown.
    fn is_met(&self) -> bool {
        self.evidence.is_shown() && self.requirement.partly.is_none()
    }
}

/// Compares the pages with the comments.
pub fn check() -> Result<(), String> {
    for (path, text) in pages()? {
        let found = fs::read_to_string(metadata::root().join(&path)).unwrap_or_default();
        if found != text {
            return Err(format!("{} is not what the comments say: cargo xtask coverage --bless", path.display()));
        }
    }
    Ok(())
}

/// Writes the pages.
pub fn bless() -> Result<(), String> {
    for (path, text) in pages()? {
        let path = metadata::root().join(path);
        fs::write(&path, text).map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
    }
    Ok(())
}

/// Generates both pages; also prints the totals.
fn pages() -> Result<Vec<(PathBuf, String)>, String> {
    let specifications = specifications(&metadata::root().join("conformance/requirements"))?;
    let annotations = annotation::collect(&metadata::root(), &["crates", "conformance/scripts", "fuzz"])?;
    let tables = tables(&specifications, &annotations)?;
    for (specification, rows) in &tables {
        println!("{}", page::totals(specification, rows));
    }
    let mut pages = vec![(PathBuf::from("docs/rfc-coverage.md"), page::coverage(&tables))];
    if let Some((_, rows)) = tables.iter().find(|(specification, _)| specification.rfc == 9293) {
        pages.push((PathBuf::from("docs/rfc9293.md"), page::appendix_b(rows)));
    }
    Ok(pages)
}

fn specifications(directory: &Path) -> Result<Vec<Specification>, String> {
    let mut paths = annotation::files(directory, &["toml"])?;
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
        toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
    };
    paths.into_iter().map(read).collect()
}

type Table<'a> = (&'a Specification, Vec<Row<'a>>);

/// Assigns every annotation to the requirements that it quotes.
fn tables<'a>(specifications: &'a [Specification], annotations: &[Annotation]) -> Result<Vec<Table<'a>>, String> {
    let mut found: BTreeMap<(u32, &str), Evidence> = BTreeMap::new();
    for annotation in annotations {
        let Some(specification) = specifications.iter().find(|s| s.rfc == annotation.rfc) else { continue };
        let quoted = specification.requirements.iter().filter(|requirement| annotation.quotes(requirement));
        let mut known = false;
        for requirement in quoted {
            known = true;
            let evidence = found.entry((specification.rfc, &requirement.id)).or_default();
            let list = if annotation.kind == Kind::Test { &mut evidence.tests } else { &mut evidence.code };
            if !list.contains(&annotation.place) {
                list.push(annotation.place.clone());
            }
        }
        if !known {
            return Err(format!(
                "{}:{}: RFC {} section {} has no requirement with the words \"{}\"; see conformance/requirements",
                annotation.path, annotation.line, annotation.rfc, annotation.section, annotation.quotation
            ));
        }
    }
    let rows = |specification: &'a Specification| {
        let row = |requirement: &'a Requirement| {
            let evidence = found.remove(&(specification.rfc, requirement.id.as_str())).unwrap_or_default();
            Row { requirement, evidence }
        };
        (specification, specification.requirements.iter().map(row).collect())
    };
    let mut rows = rows;
    Ok(specifications.iter().map(&mut rows).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPECIFICATION: &str = "rfc = 1\ntitle = \"T\"\n[[requirement]]\nid = \"MUST-1\"\nsection = \"2\"\nlevel = \
                                 \"MUST\"\nquote = \"It MUST  be so.\"\n";

    fn table(source: &str) -> Result<(bool, bool), String> {
        let specifications = [toml::from_str(SPECIFICATION).expect("a specification")];
        let annotations = annotation::parse("a.rs", source)?;
        let tables = tables(&specifications, &annotations)?;
        let evidence = &tables[0].1[0].evidence;
        Ok((!evidence.code.is_empty(), !evidence.tests.is_empty()))
    }

    const CITE: &str = "//= https://www.rfc-editor.org/rfc/rfc1#section-2\n";

    #[test]
    fn a_quotation_counts_for_code_or_for_a_test() {
        assert_eq!(table(&format!("{CITE}//# It MUST be\n//# so.\nfn f() {{}}")), Ok((true, false)));
        assert_eq!(table(&format!("{CITE}//= type=test\n//# It MUST be so.\nfn f() {{}}")), Ok((false, true)));
        assert_eq!(table(""), Ok((false, false)));
    }

    #[test]
    fn what_holds_in_part_is_not_counted_as_met() {
        let words = format!("{SPECIFICATION}partly = \"On Sundays.\"\n");
        let specifications = [toml::from_str(&words).expect("a specification")];
        let source =
            format!("{CITE}//# It MUST be so.\nfn f() {{}}\n{CITE}//= type=test\n//# It MUST be so.\nfn g() {{}}");
        let annotations = annotation::parse("a.rs", &source).expect("two annotations");
        let tables = tables(&specifications, &annotations).expect("a table");
        assert_eq!(page::totals(tables[0].0, &tables[0].1), "RFC 1: MUST 0 of 1 met and shown (1 in part)");
        assert!(page::coverage(&tables).contains("a.rs<br>in part: On Sundays."));
        assert!(page::appendix_b(&tables[0].1).contains("| in part: On Sundays. |"));
    }

    #[test]
    fn words_that_the_rfc_does_not_have_are_refused() {
        let message = table(&format!("{CITE}//# It MAY be so.\n")).unwrap_err();
        assert!(message.starts_with("a.rs:1: RFC 1 section 2 has no requirement"), "{message}");
    }
}
