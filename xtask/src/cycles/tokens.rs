//! Rust's tokens, as far as paths need them: words and punctuation with their lines, without comments, literals and
//! tests.

/// A word, or one mark; `::` is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    pub text: &'a str,
    pub line: usize,
}

/// The tokens of a file, up to the tests at its end.
pub fn tokens(source: &str) -> Vec<Token<'_>> {
    let source = source.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let (mut found, mut rest, mut line) = (Vec::new(), source, 1);
    while let Some(first) = rest.chars().next() {
        let len = literal(rest).unwrap_or_else(|| {
            let len = mark(rest, first);
            if !first.is_whitespace() {
                found.push(Token { text: &rest[..len], line });
            }
            len
        });
        line += rest[..len].matches('\n').count();
        rest = &rest[len..];
    }
    found
}

/// The length of a word, of `::`, or of one character.
fn mark(rest: &str, first: char) -> usize {
    if first.is_alphanumeric() || first == '_' {
        rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
    } else if rest.starts_with("::") {
        2
    } else {
        first.len_utf8()
    }
}

/// The length of the comment, string or character literal at the beginning of `rest`. A lifetime is none of these.
fn literal(rest: &str) -> Option<usize> {
    let end = |at: Option<usize>, len: usize| Some(at.map_or(rest.len(), |at| at + len));
    if rest.starts_with("//") {
        return end(rest.find('\n'), 0);
    }
    if rest.starts_with("/*") {
        return end(rest.find("*/"), 2);
    }
    if rest.starts_with("r#\"") || rest.starts_with("br#\"") {
        return end(rest.find("\"#"), 2);
    }
    if let Some(text) = rest.strip_prefix('"') {
        return Some(1 + closing(text, '"'));
    }
    let text = rest.strip_prefix('\'')?;
    let escaped = text.starts_with('\\');
    let single = text.chars().nth(1) == Some('\'');
    (escaped || single).then(|| 1 + closing(text, '\''))
}

/// The length of `text` up to and including its closing mark.
fn closing(text: &str, mark: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == mark => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}
