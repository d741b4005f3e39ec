//! From text to a [`Script`]: recursive descent over the tokens of `lex.rs`.
//!
//! The language is packetdrill's. Never panics on any text; a syntax error has its line.

mod call;
mod packet;

use crate::code;
use crate::error::ScriptError;
use crate::lex::{self, Kind, Token};
use crate::script::{Action, Event, Nanos, Script, Setting, When};

type Parsed<T> = Result<T, ScriptError>;

/// Limit of nested structures and parentheses, which protects the parser's stack.
const DEEPEST: u32 = 32;

/// Reads a script.
///
/// # Errors
/// A syntax error, with its line.
pub fn parse(text: &str) -> Result<Script, ScriptError> {
    parse_with(text, &[])
}

/// Reads a script in which further names are defined, as `--define` does.
///
/// # Errors
/// A syntax error, with its line.
pub fn parse_with(text: &str, defines: &[(String, String)]) -> Result<Script, ScriptError> {
    let (options, rest, line) = settings(text)?;
    let mut names: Vec<(String, Vec<Token>)> = Vec::new();
    for (name, value) in defines {
        names.push((name.clone(), lex::tokens(value, 0)?));
    }
    for option in options.iter().filter(|option| option.name == "define" || option.name == "D") {
        let Some((name, value)) = option.value.split_once('=') else {
            return Err(ScriptError::new(option.line, "a definition is written --define=NAME=value"));
        };
        names.push((name.to_owned(), lex::tokens(value, option.line)?));
    }
    let mut tokens = Vec::new();
    for token in lex::tokens(rest, line)? {
        let word = if let Kind::Word(word) = &token.kind { Some(word) } else { None };
        match word.and_then(|word| names.iter().rev().find(|(name, _)| name == word)) {
            Some((_, value)) => tokens.extend(value.iter().map(|t| Token { kind: t.kind.clone(), line: token.line })),
            None => tokens.push(token),
        }
    }
    let mut parser = Parser { tokens, at: 0, depth: 0 };
    Ok(Script { options, events: parser.events()? })
}

/// The settings of a script, as far as they can be parsed.
pub(crate) fn settings_of(text: &str) -> Vec<Setting> {
    settings(text).map(|(settings, ..)| settings).unwrap_or_default()
}

/// The leading `--name=value` lines, the text after them, and its line.
fn settings(text: &str) -> Parsed<(Vec<Setting>, &str, u32)> {
    let mut options = Vec::new();
    let mut rest = text;
    let mut line = 1;
    loop {
        let trimmed = rest.trim_start();
        line += newlines(&rest[..rest.len() - trimmed.len()]);
        rest = trimmed;
        let end = rest.find('\n').unwrap_or(rest.len());
        if rest.starts_with("//") || rest.starts_with('#') {
            rest = &rest[end..];
        } else if rest.starts_with("/*") {
            let close = rest.find("*/").ok_or_else(|| ScriptError::new(line, "a comment has no end"))? + 2;
            line += newlines(&rest[..close]);
            rest = &rest[close..];
        } else if let Some(option) = rest.strip_prefix("--") {
            // Values may be quoted; several settings may share a line.
            let len = option_len(option);
            let (name, value) = option[..len].split_once('=').unwrap_or((&option[..len], ""));
            let value = value.trim_matches(|quote| quote == '"' || quote == '`');
            options.push(Setting { line, name: name.to_owned(), value: value.to_owned() });
            rest = &option[len..];
        } else {
            return Ok((options, rest, line));
        }
    }
}

fn option_len(option: &str) -> usize {
    let mut quote = None;
    for (at, c) in option.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '"' || c == '`' => quote = Some(c),
            None if c.is_whitespace() => return at,
            _ if c == '\n' => return at,
            _ => {}
        }
    }
    option.len()
}

fn newlines(text: &str) -> u32 {
    text.bytes().filter(|byte| *byte == b'\n').count() as u32
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: u32,
}

impl Parser {
    fn events(&mut self) -> Parsed<Vec<Event>> {
        let mut events = Vec::new();
        let mut any = false;
        while self.at < self.tokens.len() {
            // Shell lines before the first event and after the last have no time.
            if let Some(Kind::Shell(shell)) = self.peek() {
                let action = Action::Shell(shell.clone());
                events.push(Event { line: self.line(), when: When::Relative(0), action });
                self.at += 1;
                continue;
            }
            events.push(self.event()?);
            any = true;
        }
        if any { Ok(events) } else { Err(self.error("the script has no event: it would check nothing")) }
    }

    fn event(&mut self) -> Parsed<Event> {
        let line = self.line();
        let (when, end) = self.when()?;
        let line_of_action = self.line();
        let action = match self.peek() {
            Some(Kind::Sign('<' | '>')) => {
                let packet = self.packet()?;
                let timed = matches!(when, When::Absolute(_) | When::Relative(_));
                if packet.direction == crate::script::Direction::Inbound && !timed {
                    return Err(ScriptError::new(line, "a packet that comes needs one time, not `*` or a range"));
                }
                Action::Packet(Box::new(packet))
            }
            Some(Kind::Shell(shell)) => {
                let action = Action::Shell(shell.clone());
                self.at += 1;
                action
            }
            Some(Kind::Code(code)) => {
                let block = code::parse(code, line_of_action)?;
                self.at += 1;
                Action::Code(block)
            }
            Some(Kind::Word(_)) => Action::Call(Box::new(self.call(end)?)),
            _ => return Err(self.expected("`<`, `>`, a system call, a shell command or a code block")),
        };
        if end.is_some() && !matches!(action, Action::Call(_)) {
            return Err(ScriptError::new(line, "only a system call has an end time"));
        }
        let timed = matches!(when, When::Absolute(_) | When::Relative(_));
        if !timed && !matches!(action, Action::Packet(_)) {
            return Err(ScriptError::new(line, "only an expected packet may have `*` or a range for its time"));
        }
        Ok(Event { line, when, action })
    }

    /// `+1`, `1`, `*`, `1~2`, `+1~+2`, `1...2`.
    fn when(&mut self) -> Parsed<(When, Option<Nanos>)> {
        if self.eat('*') {
            return Ok((When::Any, None));
        }
        let relative = self.eat('+');
        let from = self.time()?;
        if self.eat('~') {
            self.eat('+');
            let to = self.time()?;
            if to < from {
                return Err(self.error("a range of times ends before it begins"));
            }
            let range = if relative { When::RelativeRange(from, to) } else { When::AbsoluteRange(from, to) };
            return Ok((range, None));
        }
        let mut end = None;
        if self.peek() == Some(&Kind::Ellipsis) {
            self.at += 1;
            self.eat('+');
            end = Some(self.time()?);
            if end < Some(from) {
                return Err(self.error("a call returns before it begins"));
            }
        }
        Ok((if relative { When::Relative(from) } else { When::Absolute(from) }, end))
    }

    fn time(&mut self) -> Parsed<Nanos> {
        let text = match self.peek() {
            Some(Kind::Float(text) | Kind::Integer(_, text)) => text.clone(),
            _ => return Err(self.expected("a time")),
        };
        let nanos = nanos(&text).ok_or_else(|| self.error(format!("`{text}` is not a time")))?;
        self.at += 1;
        Ok(nanos)
    }

    fn peek(&self) -> Option<&Kind> {
        self.tokens.get(self.at).map(|token| &token.kind)
    }

    fn peek_at(&self, ahead: usize) -> Option<&Kind> {
        self.tokens.get(self.at + ahead).map(|token| &token.kind)
    }

    fn line(&self) -> u32 {
        let token = self.tokens.get(self.at).or(self.tokens.last());
        token.map_or(1, |token| token.line)
    }

    fn eat(&mut self, sign: char) -> bool {
        let found = self.peek() == Some(&Kind::Sign(sign));
        self.at += usize::from(found);
        found
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Some(Kind::Word(found)) if found == word);
        self.at += usize::from(found);
        found
    }

    fn want(&mut self, sign: char) -> Parsed<()> {
        if self.eat(sign) { Ok(()) } else { Err(self.expected(&format!("`{sign}`"))) }
    }

    fn word(&mut self, what: &str) -> Parsed<String> {
        match self.peek() {
            Some(Kind::Word(word)) => {
                let word = word.clone();
                self.at += 1;
                Ok(word)
            }
            _ => Err(self.expected(what)),
        }
    }

    /// A number from 0 to `most`.
    fn number(&mut self, what: &str, most: i64) -> Parsed<i64> {
        match self.peek() {
            Some(Kind::Integer(value, _) | Kind::Hex(value, _)) if (0..=most).contains(value) => {
                let value = *value;
                self.at += 1;
                Ok(value)
            }
            Some(Kind::Integer(..) | Kind::Hex(..)) => {
                Err(self.error(format!("{what} must be 0 to {most}, not {}", self.tokens[self.at].shown())))
            }
            _ => Err(self.expected(what)),
        }
    }

    fn deeper(&mut self) -> Parsed<()> {
        self.depth += 1;
        if self.depth > DEEPEST { Err(self.error("too many brackets within each other")) } else { Ok(()) }
    }

    fn error(&self, message: impl Into<String>) -> ScriptError {
        ScriptError::new(self.line(), message)
    }

    fn expected(&self, what: &str) -> ScriptError {
        match self.tokens.get(self.at) {
            Some(token) => ScriptError::new(token.line, format!("expected {what}, found {}", token.shown())),
            None => ScriptError::new(self.line(), format!("expected {what}, found the end of the script")),
        }
    }
}

/// Decimal seconds in nanoseconds; digits after the ninth place are dropped.
fn nanos(text: &str) -> Option<Nanos> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let digits = fraction.bytes().chain(std::iter::repeat(b'0')).take(9);
    let fraction = digits.fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    // A time of more than thirty years is a mistake.
    (0..1_000_000_000).contains(&whole).then(|| whole * 1_000_000_000 + fraction)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::{Body, flag};

    fn one(text: &str) -> Event {
        let script = parse(text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(script.events.len(), 1);
        script.events.into_iter().next().expect("one event")
    }

    #[test]
    fn times() {
        assert_eq!(one("+.1 > . 1:1(0) ack 1").when, When::Relative(100_000_000));
        assert_eq!(one("1.25 > . 1:1(0) ack 1").when, When::Absolute(1_250_000_000));
        assert_eq!(one("+.3~+.400 > . 1:1(0) ack 1").when, When::RelativeRange(300_000_000, 400_000_000));
        assert_eq!(one("* > . 1:1(0) ack 1").when, When::Any);
    }

    #[test]
    fn the_ace_field_stands_before_or_behind_the_point() {
        let flags = |text: &str| match one(&format!("+0 > {text} 1:1(0) ack 1")).action {
            Action::Packet(packet) => match packet.body {
                Body::Tcp(tcp) => tcp.flags,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        let five = flag::AE | flag::ECE;
        assert_eq!(flags(".5"), flag::ACK | five);
        assert_eq!(flags("P.5"), flag::PSH | flag::ACK | five);
        assert_eq!(flags("P5."), flag::PSH | flag::ACK | five);
        assert_eq!(flags("F2."), flag::FIN | flag::ACK | flag::CWR);
        assert_eq!(flags("PAE."), flags("P5."));
    }

    #[test]
    fn settings_definitions_and_lines() {
        let script = parse("--mtu=1500 // x\n--define=LEN=1000\n\n+0 < . 1:1001(LEN) ack 1 win 5\n").expect("a script");
        assert_eq!(script.options.len(), 2);
        assert_eq!(script.events[0].line, 4);
        let Action::Packet(packet) = &script.events[0].action else { panic!("a packet") };
        let Body::Tcp(tcp) = &packet.body else { panic!("TCP") };
        assert_eq!((tcp.len, tcp.flags, tcp.window), (1000, flag::ACK, Some(5)));
    }

    #[test]
    fn a_call_with_a_result_is_followed_by_an_event() {
        let script = parse(
            "0 read(4, ..., 10) = -1 EAGAIN (Resource, so)\n+0...0.5 accept(3, ..., ...) = 4\n* > F. 1:1(0) ack 1",
        );
        assert_eq!(script.expect("three events").events.len(), 3);
    }

    #[test]
    fn errors_name_the_line() {
        for (text, line) in [("\n+0 < Q 0:0(0)", 2), ("\n\n0 foo(", 3), ("0 > . 1:5(3)", 1), ("+x", 1)] {
            assert_eq!(parse(text).expect_err("it is no script").line, line, "{text}");
        }
    }
}
