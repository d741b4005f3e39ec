//! The lexer: cuts a script into tokens with their lines.
//!
//! Called by [`crate::parse`] alone. Never panics on any text: an unknown token is an error that names the line.
//! Comments run from `//` or `#` to the end of the line, or between `/*` and `*/`.

use crate::error::ScriptError;

/// Kinds of tokens.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// Letters, digits, underscores; may begin with a digit (`1234abcd`).
    Word(String),
    /// Decimal digits, optionally with a minus; the text is kept, because a cookie may look like a number.
    Integer(i64, String),
    /// `0x` and hexadecimal digits.
    Hex(i64, String),
    /// A number with a point, in nanoseconds if it is a time; the text is kept for `.5` as flags.
    Float(String),
    /// Between double quotes, escapes resolved.
    Text(Vec<u8>),
    /// Between backquotes: lines for a shell.
    Shell(String),
    /// Between `%{` and `}%`.
    Code(String),
    /// `...`
    Ellipsis,
    /// `<<` or `>>`.
    Shift(bool),
    /// Any other sign.
    Sign(char),
}

/// A token and its line.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) line: u32,
}

impl Token {
    /// The token as an error message shows it.
    pub(crate) fn shown(&self) -> String {
        match &self.kind {
            Kind::Word(text) | Kind::Integer(_, text) | Kind::Hex(_, text) | Kind::Float(text) => format!("`{text}`"),
            Kind::Text(_) => "a string".into(),
            Kind::Shell(_) => "a shell command".into(),
            Kind::Code(_) => "a code block".into(),
            Kind::Ellipsis => "`...`".into(),
            Kind::Shift(left) => if *left { "`<<`" } else { "`>>`" }.into(),
            Kind::Sign(sign) => format!("`{sign}`"),
        }
    }
}

/// Cuts `text`, whose first line has the number `line`.
pub(crate) fn tokens(text: &str, line: u32) -> Result<Vec<Token>, ScriptError> {
    let mut lexer = Lexer { rest: text, line, tokens: Vec::new() };
    while lexer.next()? {}
    Ok(lexer.tokens)
}

struct Lexer<'t> {
    rest: &'t str,
    line: u32,
    tokens: Vec<Token>,
}

impl<'t> Lexer<'t> {
    /// Takes one token, or white space and comments; false at the end.
    fn next(&mut self) -> Result<bool, ScriptError> {
        let Some(first) = self.rest.chars().next() else { return Ok(false) };
        let rest = self.rest;
        if first.is_whitespace() {
            self.eat(first.len_utf8());
        } else if rest.starts_with("//") || first == '#' {
            self.eat(rest.find('\n').unwrap_or(rest.len()));
        } else if rest.starts_with("/*") {
            self.between(2, "*/", "a comment")?;
        } else if rest.starts_with("%{") {
            let line = self.line;
            let code = self.between(2, "}%", "a code block")?.to_owned();
            self.tokens.push(Token { kind: Kind::Code(code), line });
        } else if first == '`' {
            let line = self.line;
            let shell = self.between(1, "`", "a shell command")?.to_owned();
            self.tokens.push(Token { kind: Kind::Shell(shell), line });
        } else if first == '"' {
            self.text()?;
        } else if rest.starts_with("...") {
            self.take(Kind::Ellipsis, 3);
        } else if self.number()? {
        } else if first.is_ascii_alphabetic() || first == '_' {
            let len = word_len(rest);
            self.take(Kind::Word(rest[..len].to_owned()), len);
        } else if rest.starts_with("<<") {
            self.take(Kind::Shift(true), 2);
        } else if first.is_ascii_graphic() {
            self.take(Kind::Sign(first), 1);
        } else {
            return Err(ScriptError::new(self.line, format!("unknown character {first:?}")));
        }
        Ok(true)
    }

    fn eat(&mut self, len: usize) -> &'t str {
        let (eaten, rest) = self.rest.split_at(len);
        self.line += eaten.bytes().filter(|byte| *byte == b'\n').count() as u32;
        self.rest = rest;
        eaten
    }

    fn take(&mut self, kind: Kind, len: usize) {
        self.tokens.push(Token { kind, line: self.line });
        self.eat(len);
    }

    /// The text between an opening of `open` bytes and `close`.
    fn between(&mut self, open: usize, close: &str, what: &str) -> Result<&'t str, ScriptError> {
        let end = self.rest[open..].find(close);
        let Some(len) = end else { return Err(ScriptError::new(self.line, format!("{what} has no end"))) };
        let eaten = self.eat(open + len + close.len());
        Ok(&eaten[open..open + len])
    }

    /// A number, or a word that begins with a digit. False: it is neither.
    fn number(&mut self) -> Result<bool, ScriptError> {
        let rest = self.rest;
        let bytes = rest.as_bytes();
        let sign = usize::from(bytes[0] == b'-');
        let digits = count(&bytes[sign..], u8::is_ascii_digit);
        let fraction = match bytes.get(sign + digits) {
            Some(b'.') => count(&bytes[sign + digits + 1..], u8::is_ascii_digit),
            _ => 0,
        };
        if fraction > 0 {
            let len = sign + digits + 1 + fraction;
            self.take(Kind::Float(rest[..len].to_owned()), len);
            return Ok(true);
        }
        if digits == 0 {
            return Ok(false);
        }
        let word = word_len(&rest[sign..]);
        if word > digits {
            let text = &rest[sign..sign + word];
            let hex = text.strip_prefix("0x").filter(|hex| hex.bytes().all(|digit| digit.is_ascii_hexdigit()));
            if let Some(hex) = hex.filter(|hex| !hex.is_empty()) {
                let value = u64::from_str_radix(hex, 16).map_err(|_| self.too_large(text))?;
                self.take(Kind::Hex(value as i64, text.to_owned()), sign + word);
            } else {
                self.take(Kind::Word(text.to_owned()), sign + word);
            }
            return Ok(true);
        }
        let text = &rest[..sign + digits];
        // A cookie of sixteen decimal digits is not used as a number: it need not fit.
        let value = text.parse::<i64>().unwrap_or(i64::MAX);
        self.take(Kind::Integer(value, text.to_owned()), text.len());
        Ok(true)
    }

    fn too_large(&self, text: &str) -> ScriptError {
        ScriptError::new(self.line, format!("the number {text} is too large"))
    }

    fn text(&mut self) -> Result<(), ScriptError> {
        let line = self.line;
        let mut bytes = Vec::new();
        let mut at = 1;
        let raw = self.rest.as_bytes();
        loop {
            match raw.get(at) {
                None => return Err(ScriptError::new(line, "a string has no end")),
                Some(b'"') => break,
                Some(b'\\') => at += escape(&raw[at + 1..], &mut bytes) + 1,
                Some(byte) => {
                    bytes.push(*byte);
                    at += 1;
                }
            }
        }
        self.eat(at + 1);
        self.tokens.push(Token { kind: Kind::Text(bytes), line });
        Ok(())
    }
}

/// Resolves the escape after a backslash; returns its length in bytes.
fn escape(after: &[u8], out: &mut Vec<u8>) -> usize {
    let hex = |digit: Option<&u8>| digit.and_then(|digit| (*digit as char).to_digit(16));
    match after.first() {
        None => 0,
        Some(b'x') => match (hex(after.get(1)), hex(after.get(2))) {
            (Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                3
            }
            _ => {
                out.push(b'x');
                1
            }
        },
        Some(byte) => {
            out.push(match byte {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'0' => 0,
                other => *other,
            });
            1
        }
    }
}

fn count(bytes: &[u8], is: fn(&u8) -> bool) -> usize {
    bytes.iter().take_while(|byte| is(byte)).count()
}

fn word_len(text: &str) -> usize {
    text.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        tokens(text, 1).expect("it can be cut").iter().map(Token::shown).collect()
    }

    #[test]
    fn a_blocking_time_is_three_tokens() {
        assert_eq!(shown("+0...0.300"), ["`+`", "`0`", "`...`", "`0.300`"]);
        assert_eq!(shown("1....5"), ["`1`", "`...`", "`.5`"]);
    }

    #[test]
    fn cookies_are_words_and_addresses_hold_together() {
        assert_eq!(shown("FO 12ab,nop"), ["`FO`", "`12ab`", "`,`", "`nop`"]);
        assert_eq!(shown("0x1F -1 SW."), ["`0x1F`", "`-1`", "`SW`", "`.`"]);
    }

    #[test]
    fn lines_are_counted_through_comments_and_blocks() {
        let cut = tokens("// one\n/* two\n */ a\n`x\ny` b\n%{ c\n}% d", 1).expect("it can be cut");
        let lines: Vec<_> = cut.iter().map(|token| token.line).collect();
        assert_eq!(lines, [3, 4, 5, 6, 7]);
    }

    #[test]
    fn what_has_no_end_names_its_line() {
        for text in ["\n`ls", "\n\"abc", "\n/* x", "\n%{ assert"] {
            assert_eq!(tokens(text, 1).expect_err("it has no end").line, 2);
        }
    }

    #[test]
    fn escapes() {
        assert_eq!(tokens(r#""a\x41\n\"""#, 1).expect("a string")[0].kind, Kind::Text(b"aA\n\"".to_vec()));
    }
}
