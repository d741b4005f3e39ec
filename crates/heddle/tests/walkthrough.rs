//! The recordings in the documents match the code: the walk in docs/walk.txt, the pictures and costs in
//! docs/architectures. `UPDATE_SNAPSHOTS=1` writes them again.

#[path = "walk/pages.rs"]
mod pages;
#[path = "walk/picture.rs"]
mod picture;
mod walk;
mod world;

/// Fails unless the file of `docs` has the `expected` contents; with UPDATE_SNAPSHOTS, writes it.
#[cfg(debug_assertions)]
fn compare(path: &str, expected: impl FnOnce(&str) -> String) {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/").to_owned() + path;
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    let expected = expected(&committed);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&file, &expected).unwrap_or_else(|error| panic!("docs/{path}: {error}"));
        return;
    }
    let remedy = "UPDATE_SNAPSHOTS=1 cargo test -p heddle --test walkthrough";
    assert!(expected == committed, "docs/{path} is not what the code does; {remedy} writes it again:\n{expected}");
}

#[test]
#[cfg(debug_assertions)]
fn the_page_is_what_the_code_does() {
    compare("walk.txt", |_| walk::page());
}

/// A new family has a page with a picture, or this fails.
const BEGIN: &str = "# Recorded: written by UPDATE_SNAPSHOTS=1 cargo test -p heddle --test walkthrough\n";
const END: &str = "# End of recorded.\n";

/// The locks of one send are those of the paper's figure, in its order, and its page shows them.
#[test]
#[cfg(debug_assertions)]
fn figure_4_of_willmann_is_what_the_code_does() {
    assert!(walk::figure4::in_the_papers_order(), "{}", walk::figure4::text());
    compare("../crates/paper/papers/willmann.toml", |present| {
        let parts = present.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
        let (before, after) = parts.expect("the file has both markers");
        format!("{before}{BEGIN}{}{END}{after}", walk::figure4::toml())
    });
}

#[test]
#[cfg(debug_assertions)]
fn every_family_has_its_page_picture_and_costs() {
    for pages::File { path, expected } in pages::files() {
        compare(&path, expected);
    }
}
