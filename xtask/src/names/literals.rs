//! The string literals of a Rust source file, and its code without them.

use std::iter::Peekable;
use std::str::Chars;

/// A string literal.
#[derive(Debug, PartialEq, Eq)]
pub struct Literal {
    /// The line that it begins on, from 1.
    pub line: usize,
    /// The text between the quotes; an escape is replaced by the character after the backslash.
    pub text: String,
}

struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
    line: usize,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<char> {
        let next = self.rest.next();
        self.line += usize::from(next == Some('\n'));
        next
    }

    fn next_if(&mut self, wanted: char) -> bool {
        let is = self.rest.peek() == Some(&wanted);
        if is {
            self.next();
        }
        is
    }

    /// After `//` or `/*`.
    fn comment(&mut self, block: bool) {
        let mut depth = 1;
        while let Some(c) = self.next() {
            match c {
                '\n' if !block => return,
                '*' if block && self.next_if('/') => depth -= 1,
                '/' if block && self.next_if('*') => depth += 1,
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
    }

    /// After the opening quote.
    fn string(&mut self) -> String {
        let mut text = String::new();
        while let Some(c) = self.next() {
            match c {
                '"' => break,
                '\\' => {
                    // A continued line, and a line break, separate words.
                    let escaped = self.next().filter(|c| !['n', '\n'].contains(c));
                    text.push(escaped.unwrap_or(' '));
                }
                c => text.push(c),
            }
        }
        text
    }

    /// After the opening quote of a raw string with `hashes` hashes.
    fn raw(&mut self, hashes: usize) -> String {
        let mut text = String::new();
        while let Some(c) = self.next() {
            text.push(c);
            let end = format!("\"{}", "#".repeat(hashes));
            if text.ends_with(&end) {
                text.truncate(text.len() - end.len());
                break;
            }
        }
        text
    }

    /// After an apostrophe: a character, or a lifetime.
    fn apostrophe(&mut self) {
        if self.next() == Some('\\') {
            self.next();
            while self.next().is_some_and(|c| c != '\'') {}
        } else {
            self.next_if('\'');
        }
    }
}

/// The literals of `source`, up to its unit tests at the end of the file.
pub fn literals(source: &str) -> Vec<Literal> {
    split(source).1
}

/// The code of `source` without comments and literals, up to its unit tests at the end of the file.
pub fn code(source: &str) -> String {
    split(source).0
}

fn split(source: &str) -> (String, Vec<Literal>) {
    let source = source.split_once("#[cfg(test)]\nmod tests {").map_or(source, |(code, _)| code);
    let mut reader = Reader { rest: source.chars().peekable(), line: 1 };
    let (mut code, mut found) = (String::new(), Vec::new());
    let mut word = String::new();
    while let Some(c) = reader.next() {
        let line = reader.line;
        match c {
            '/' if reader.next_if('/') => reader.comment(false),
            '/' if reader.next_if('*') => reader.comment(true),
            '"' if word.ends_with('r') => found.push(Literal { line, text: reader.raw(0) }),
            '"' => found.push(Literal { line, text: reader.string() }),
            '#' if ["r", "br", "cr"].contains(&word.as_str()) => {
                let mut hashes = 1;
                while reader.next_if('#') {
                    hashes += 1;
                }
                // Otherwise it is a raw identifier.
                if reader.next_if('"') {
                    found.push(Literal { line, text: reader.raw(hashes) });
                }
            }
            '\'' => reader.apostrophe(),
            c => code.push(c),
        }
        if c.is_alphanumeric() || c == '_' { word.push(c) } else { word.clear() }
    }
    (code, found)
}
