use super::*;

const SOURCE: &str = r##"
//! `msgp` is named in a comment, and "giant" too.
/* "giant" /* "giant" */ "giant" */
fn f<'a>(quote: char) -> &'a str {
    if quote == '"' || quote == '\'' { return "first \"line\" \
        and second"; }
    r#"a "raw" one"#
}

#[cfg(test)]
mod tests {
    const NAME: &str = "giant";
}
"##;

fn set(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn literals_are_told_from_comments_characters_and_tests() {
    let found = literals(SOURCE);
    let texts: Vec<(usize, &str)> = found.iter().map(|literal| (literal.line, literal.text.as_str())).collect();
    assert_eq!(texts, [(5, "first \"line\"          and second"), (7, "a \"raw\" one")]);
}

#[test]
fn names_are_found_in_lists_options_and_sentences() {
    let (families, english) = (families("# head\nup\ngiant\nmsgp:1\nmsgp:2+coupled\nconnp-t\n"), set(&["up"]));
    assert_eq!(families, set(&["up", "giant", "msgp", "connp-t"]));
    let named = |text| named(text, &families, &english);
    assert_eq!(named("up"), ["up"]);
    assert_eq!(named("give up"), Vec::<&str>::new());
    assert_eq!(named("runs under `up`, and ends"), ["up"]);
    assert_eq!(named("heddle compare --arch up,connp-t -v"), ["up", "connp-t"]);
    assert_eq!(named("msgp+coupled"), ["msgp"]);
    assert_eq!(named("try `msgp:6`, or (giant)"), ["msgp", "giant"]);
    assert_eq!(named("gigantic upload giants"), Vec::<&str>::new());
}

#[test]
fn a_name_is_refused_unless_it_is_allowed_and_an_idle_allowance_is_seen() {
    let rules = parse("# head\n\nenglish up\nallow a.rs up: a word of a command\ncounted up\n").unwrap();
    assert_eq!(rules.counted, ["up"]);
    let known = set(&["up", "giant"]);
    let mut unused = rules.allowed.clone();
    let source = "const A: &str = \"up\";\nconst B: &str = \"giant\";\n";
    assert_eq!(
        check_file("a.rs", source, (&known, &rules), &mut unused),
        ["a.rs:2: a string names the architecture giant"]
    );
    assert!(unused.is_empty());
    assert_eq!(check_file("b.rs", source, (&known, &rules), &mut unused).len(), 2);
    for text in ["allow a.rs up", "english", "deny a.rs up: so"] {
        assert!(parse(text).is_err(), "{text:?} was accepted");
    }
}
