//! Tokens of a specification (RFC 4506 section 6.2), with their positions.

use crate::SpecificationError;

/// Where a token begins; both counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Position {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

impl Position {
    pub(crate) fn error(self, message: impl Into<String>) -> SpecificationError {
        SpecificationError { line: self.line, column: self.column, message: message.into() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token {
    /// An identifier or a keyword.
    Word(String),
    Number(i128),
    /// One of `; , : = * ( ) { } [ ] < >`.
    Mark(char),
    End,
}

impl Token {
    /// The token as a message shows it.
    pub(crate) fn shown(&self) -> String {
        match self {
            Token::Word(word) => format!("`{word}`"),
            Token::Number(number) => format!("the number {number}"),
            Token::Mark(mark) => format!("`{mark}`"),
            Token::End => "the end of the file".into(),
        }
    }
}

/// All tokens of `text`; the last one is [`Token::End`].
pub(crate) fn tokens(text: &str) -> Result<Vec<(Token, Position)>, SpecificationError> {
    let mut lexer = Lexer { rest: text, at: Position { line: 1, column: 1 } };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_space()?;
        let at = lexer.at;
        let token = lexer.token()?;
        let ended = token == Token::End;
        tokens.push((token, at));
        if ended {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    rest: &'a str,
    at: Position,
}

impl<'a> Lexer<'a> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.rest = &self.rest[next.len_utf8()..];
        self.at = match next {
            '\n' => Position { line: self.at.line + 1, column: 1 },
            _ => Position { column: self.at.column + 1, ..self.at },
        };
        Some(next)
    }

    /// The characters up to the first for which `belongs` is false.
    fn while_true(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let from = self.rest;
        while self.peek().is_some_and(&belongs) {
            self.next();
        }
        &from[..from.len() - self.rest.len()]
    }

    /// Skips white space and comments.
    fn skip_space(&mut self) -> Result<(), SpecificationError> {
        loop {
            self.while_true(char::is_whitespace);
            if !self.rest.starts_with("/*") {
                return Ok(());
            }
            let at = self.at;
            let end = self.rest.find("*/").ok_or_else(|| at.error("a comment without `*/`"))?;
            let target = self.rest.len() - end - 2;
            while self.rest.len() > target {
                self.next();
            }
        }
    }

    fn token(&mut self) -> Result<Token, SpecificationError> {
        let at = self.at;
        match self.peek() {
            None => Ok(Token::End),
            Some(letter) if letter.is_ascii_alphabetic() => {
                Ok(Token::Word(self.while_true(|c| c.is_ascii_alphanumeric() || c == '_').into()))
            }
            Some(digit) if digit.is_ascii_digit() || digit == '-' => self.number(at),
            Some(mark) if ";,:=*(){}[]<>".contains(mark) => {
                self.next();
                Ok(Token::Mark(mark))
            }
            Some('%') => {
                Err(at.error("lines that begin with `%` are for another compiler, and no part of XDR: delete this one"))
            }
            Some(other) => Err(at.error(format!("`{}` begins nothing in XDR", other.escape_default()))),
        }
    }

    /// A decimal number, which may be negative, an octal or a hexadecimal one.
    fn number(&mut self, at: Position) -> Result<Token, SpecificationError> {
        let negative = self.peek() == Some('-');
        if negative {
            self.next();
        }
        let digits = self.while_true(|c| c.is_ascii_alphanumeric());
        let value = match digits {
            "0" => Some(0),
            _ if digits.starts_with("0x") => i128::from_str_radix(&digits[2..], 16).ok().filter(|_| !negative),
            _ if digits.starts_with('0') => i128::from_str_radix(&digits[1..], 8).ok().filter(|_| !negative),
            _ => digits.parse().ok(),
        };
        match value {
            Some(value) => Ok(Token::Number(if negative { -value } else { value })),
            None => Err(at.error(format!(
                "`{}{digits}` is not a number: decimal (-12), hexadecimal (0x1f) or octal (017)",
                if negative { "-" } else { "" }
            ))),
        }
    }
}
