use super::*;

fn graph(files: &[(&str, &str)], within: &[&str]) -> Graph {
    let sources = files.iter().map(|(file, source)| {
        let path = file.trim_end_matches(".rs");
        let names = path.split('/').filter(|name| !matches!(*name, "mod" | "lib")).map(str::to_owned).collect();
        (names, ((*file).to_owned(), (*source).to_owned()))
    });
    Crate::parse(sources.collect()).graph(within)
}

#[test]
fn a_circle_is_told_with_the_lines_that_close_it() {
    let files = [
        ("lib.rs", "pub mod a;\npub mod b;\nmod c;\npub use b::Item;"),
        ("a.rs", "//! [`crate::c`] in words\nuse crate::{\n    Item,\n    b::Other,\n};"),
        ("b.rs", "pub struct Item;\nfn f() {\n    super::c::run();\n}"),
        ("c.rs", "use crate::a;\npub fn run() { a::go() }"),
    ];
    let cycles = graph(&files, &[]).cycles();
    let wanted = "  a -> b: a.rs:3: Item,\n  b -> c: b.rs:3: super::c::run();\n  c -> a: c.rs:1: use crate::a;";
    assert_eq!(cycles, [wanted]);
}

#[test]
fn what_is_no_import_closes_no_circle() {
    let files = [
        ("lib.rs", "mod a;\nmod b;\npub use a::A;"),
        ("a.rs", "use crate::b::B;\n// crate::b\nmod inner {\n    use super::A;\n}"),
        (
            "b.rs",
            "const TEXT: &str = \"crate::a\";\nfn f<'a>(c: char) { c == '{' }\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}",
        ),
    ];
    let graph = graph(&files, &[]);
    assert_eq!(graph.cycles(), Vec::<String>::new());
    assert!(graph.has("a", "b") && !graph.has("b", "a"));
}

/// In a directory the code of `mod.rs` is a separate node; its re-exports belong to the child.
#[test]
fn files_of_a_directory_are_told_apart() {
    let files = [
        ("lib.rs", "mod event;"),
        (
            "event/mod.rs",
            "mod open;\nmod close;\npub use open::Open;\nuse close::Close;\npub struct Event;\nfn f() { open::go() }",
        ),
        ("event/open.rs", "use super::Event;\npub struct Open;"),
        ("event/close.rs", "use super::Open;\npub struct Close;"),
    ];
    let graph = graph(&files, &["event"]);
    assert!(graph.has("close", "open") && !graph.has("close", "mod"), "the name leads to where it is defined");
    assert!(graph.has("mod", "close") && graph.has("mod", "open") && graph.has("open", "mod"));
    assert_eq!(graph.cycles().len(), 1);
}

#[test]
fn the_list_is_kept_exact() {
    let files = [("lib.rs", ""), ("a.rs", "use crate::b;"), ("b.rs", "use crate::a;\nuse crate::c;"), ("c.rs", "")];
    let pair = |from: &str, to: &str| ("d".to_owned(), from.to_owned(), to.to_owned());
    let wrong = |pairs: &[Pair]| check_directory("d", graph(&files, &[]), &pairs.iter().collect::<Vec<_>>());
    assert_eq!(wrong(&[]).len(), 1, "a circle");
    assert_eq!(wrong(&[pair("b", "a")]), Vec::<String>::new());
    assert!(wrong(&[pair("b", "a"), pair("a", "c")])[0].ends_with("a -> c is no import any more; take the line out"));
    assert!(wrong(&[pair("b", "a"), pair("b", "c")])[0].ends_with("b -> c is in no cycle any more; take the line out"));
    assert!(parse("d a -> b: for now\n# a comment\n").is_ok_and(|pairs| pairs.contains_key(&pair("a", "b"))));
    assert!(parse("d a -> b\n").is_err(), "without a reason");
}

#[test]
fn the_tree_imports_one_way() {
    assert_eq!(check(), Ok(()));
}
