//! Statements and expressions of a code block.

use super::{Block, Comparison, Expression, Infix, Statement, Value};
use crate::error::ScriptError;

/// Limit of nested parentheses.
const DEEPEST: u32 = 32;

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Name(String),
    Number(Value),
    Text(String),
    Sign(&'static str),
    End,
}

const SIGNS: [&str; 35] = [
    "<<=", ">>=", "//=", "==", "!=", "<=", ">=", "+=", "-=", "*=", "/=", "|=", "&=", "%=", "<<", ">>", "//", "(", ")",
    ",", ";", "=", "<", ">", "+", "-", "*", "/", "%", "&", "|", "^", "~", "[", "]",
];

/// Parses a block whose first line has the number `line`.
pub(crate) fn parse(code: &str, line: u32) -> Result<Block, ScriptError> {
    let tokens = tokens(code, line)?;
    let mut parser = Parser { tokens, at: 0, depth: 0, code };
    let mut statements = Vec::new();
    while parser.at < parser.tokens.len() {
        if parser.eat(";") || parser.take(&Token::End) {
            continue;
        }
        let line = parser.line();
        if let Some(statement) = parser.statement()? {
            statements.push((line, statement));
        }
        if parser.at < parser.tokens.len() && !parser.eat(";") && !parser.take(&Token::End) {
            return Err(parser.error("expected the end of the statement"));
        }
    }
    Ok(Block { statements })
}

/// A token, its line, and its start and end in the code.
type Placed = (Token, u32, usize, usize);

fn tokens(code: &str, mut line: u32) -> Result<Vec<Placed>, ScriptError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    let mut open = 0_u32;
    while let Some(c) = code[at..].chars().next() {
        let rest = &code[at..];
        let start = at;
        if c == '\n' {
            at += 1;
            // Within parentheses a line continues.
            if open == 0 {
                tokens.push((Token::End, line, start, at));
            }
            line += 1;
        } else if c.is_whitespace() {
            at += c.len_utf8();
        } else if c == '\\' {
            let to = rest.find('\n').ok_or_else(|| ScriptError::new(line, "nothing follows the backslash"))?;
            at += to + 1;
            line += 1;
        } else if c == '#' || rest.starts_with("//") && ends_statement(&tokens) {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if c.is_ascii_digit() || c == '.' && rest[1..].starts_with(|d: char| d.is_ascii_digit()) {
            let (number, len) = number(rest).ok_or_else(|| ScriptError::new(line, "this number cannot be read"))?;
            at += len;
            tokens.push((Token::Number(number), line, start, at));
        } else if c.is_ascii_alphabetic() || c == '_' {
            at += rest.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
            tokens.push((Token::Name(code[start..at].to_owned()), line, start, at));
        } else if c == '\'' || c == '"' {
            let len = rest[1..].find(c).ok_or_else(|| ScriptError::new(line, "a string has no end"))?;
            at += len + 2;
            tokens.push((Token::Text(rest[1..=len].to_owned()), line, start, at));
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            at += sign.len();
            match *sign {
                "(" | "[" => open += 1,
                ")" | "]" => open = open.saturating_sub(1),
                _ => {}
            }
            tokens.push((Token::Sign(sign), line, start, at));
        } else {
            return Err(ScriptError::new(line, format!("unknown character {c:?} in a code block")));
        }
    }
    Ok(tokens)
}

/// Whether a `//` here is not a division, because it begins a statement.
fn ends_statement(tokens: &[Placed]) -> bool {
    matches!(tokens.last(), None | Some((Token::End | Token::Sign(";"), ..)))
}

fn number(text: &str) -> Option<(Value, usize)> {
    if let Some(hex) = text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        let len = hex.bytes().take_while(u8::is_ascii_hexdigit).count();
        return Some((Value::Int(i128::from(u64::from_str_radix(&hex[..len], 16).ok()?)), len + 2));
    }
    let bytes = text.as_bytes();
    let mut len = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut real = false;
    if bytes.get(len) == Some(&b'.') {
        real = true;
        len += 1 + bytes[len + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    }
    if matches!(bytes.get(len), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(len + 1), Some(b'+' | b'-')));
        let digits = bytes.get(len + 1 + sign..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits > 0 {
            real = true;
            len += 1 + sign + digits;
        }
    }
    let value = if real {
        Value::Real(text[..len].parse().ok()?)
    } else {
        Value::Int(i128::from(text[..len].parse::<u64>().ok()?))
    };
    Some((value, len))
}

struct Parser<'c> {
    tokens: Vec<Placed>,
    at: usize,
    depth: u32,
    code: &'c str,
}

type Parsed<T> = Result<T, ScriptError>;

impl Parser<'_> {
    fn statement(&mut self) -> Parsed<Option<Statement>> {
        let Some(Token::Name(name)) = self.peek().cloned() else {
            return Ok(Some(Statement::Evaluate(self.expression()?)));
        };
        match name.as_str() {
            "pass" => {
                self.at += 1;
                Ok(None)
            }
            "assert" => {
                self.at += 1;
                let start = self.tokens.get(self.at).map_or(0, |token| token.2);
                let condition = self.expression()?;
                let end = self.tokens.get(self.at.wrapping_sub(1)).map_or(start, |token| token.3);
                let message = if self.eat(",") { Some(self.tuple()?) } else { None };
                let text =
                    self.code.get(start..end).unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
                Ok(Some(Statement::Assert(condition, message, text)))
            }
            "import" | "from" | "for" | "while" | "if" | "def" | "class" | "try" | "with" | "return" | "lambda"
            | "del" | "global" | "raise" => {
                Err(ScriptError::unsupported(self.line(), format!("`{name}` in a code block")))
            }
            _ => {
                let operator = match self.tokens.get(self.at + 1).map(|token| &token.0) {
                    Some(Token::Sign("=")) => None,
                    Some(Token::Sign(sign)) if sign.ends_with('=') => match infix(&sign[..sign.len() - 1]) {
                        Some(operator) => Some(operator),
                        None => return Ok(Some(Statement::Evaluate(self.expression()?))),
                    },
                    _ => return Ok(Some(Statement::Evaluate(self.tuple()?))),
                };
                self.at += 2;
                Ok(Some(Statement::Assign(name, operator, self.tuple()?)))
            }
        }
    }

    /// One expression, or several with commas between them.
    fn tuple(&mut self) -> Parsed<Expression> {
        let first = self.expression()?;
        if !self.eat(",") {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.at < self.tokens.len() && !matches!(self.peek(), Some(Token::End | Token::Sign(";" | ")"))) {
            items.push(self.expression()?);
            if !self.eat(",") {
                break;
            }
        }
        Ok(Expression::Tuple(items))
    }

    fn expression(&mut self) -> Parsed<Expression> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.error("too many parentheses within each other"));
        }
        let value = self.or()?;
        let result = if self.eat_name("if") {
            let condition = self.or()?;
            if !self.eat_name("else") {
                return Err(self.error("expected `else`"));
            }
            let other = self.expression()?;
            Expression::Choice(Box::new(condition), Box::new(value), Box::new(other))
        } else {
            value
        };
        self.depth -= 1;
        Ok(result)
    }

    fn or(&mut self) -> Parsed<Expression> {
        let mut left = self.and()?;
        while self.eat_name("or") {
            left = Expression::Or(Box::new(left), Box::new(self.and()?));
        }
        Ok(left)
    }

    fn and(&mut self) -> Parsed<Expression> {
        let mut left = self.not()?;
        while self.eat_name("and") {
            left = Expression::And(Box::new(left), Box::new(self.not()?));
        }
        Ok(left)
    }

    fn not(&mut self) -> Parsed<Expression> {
        let mut inverted = false;
        while self.eat_name("not") {
            inverted = !inverted;
        }
        let inner = self.comparison()?;
        Ok(if inverted { Expression::Not(Box::new(inner)) } else { inner })
    }

    fn comparison(&mut self) -> Parsed<Expression> {
        let first = self.binary(0)?;
        let mut rest = Vec::new();
        while let Some(comparison) = self.comparison_sign() {
            rest.push((comparison, self.binary(0)?));
        }
        Ok(if rest.is_empty() { first } else { Expression::Compare(Box::new(first), rest) })
    }

    fn comparison_sign(&mut self) -> Option<Comparison> {
        let (comparison, len) = match (self.peek()?, self.tokens.get(self.at + 1).map(|token| &token.0)) {
            (Token::Sign("=="), _) => (Comparison::Equal, 1),
            (Token::Sign("!="), _) => (Comparison::NotEqual, 1),
            (Token::Sign("<"), _) => (Comparison::Less, 1),
            (Token::Sign("<="), _) => (Comparison::LessOrEqual, 1),
            (Token::Sign(">"), _) => (Comparison::Greater, 1),
            (Token::Sign(">="), _) => (Comparison::GreaterOrEqual, 1),
            (Token::Name(name), _) if name == "in" => (Comparison::In, 1),
            (Token::Name(not), Some(Token::Name(name))) if not == "not" && name == "in" => (Comparison::NotIn, 2),
            _ => return None,
        };
        self.at += len;
        Some(comparison)
    }

    /// Operators from the level on: `|`, `^`, `&`, shifts, sums, products.
    fn binary(&mut self, level: usize) -> Parsed<Expression> {
        const LEVELS: [&[&str]; 6] = [&["|"], &["^"], &["&"], &["<<", ">>"], &["+", "-"], &["*", "/", "//", "%"]];
        let Some(signs) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        loop {
            let Some(Token::Sign(sign)) = self.peek() else { return Ok(left) };
            let Some(operator) = infix(sign).filter(|_| signs.contains(sign)) else { return Ok(left) };
            self.at += 1;
            left = Expression::Infix(operator, Box::new(left), Box::new(self.binary(level + 1)?));
        }
    }

    fn unary(&mut self) -> Parsed<Expression> {
        let mut signs = Vec::new();
        while let Some(Token::Sign(sign @ ("-" | "+" | "~"))) = self.peek() {
            signs.push(*sign);
            self.at += 1;
        }
        // Each is one level of the expression, with the same limit as parentheses.
        if signs.len() > DEEPEST as usize {
            return Err(self.error("too many signs in front of a value"));
        }
        let mut value = self.primary()?;
        for sign in signs.into_iter().rev() {
            value = match sign {
                "-" => Expression::Negate(Box::new(value)),
                "~" => Expression::Invert(Box::new(value)),
                _ => value,
            };
        }
        Ok(value)
    }

    fn primary(&mut self) -> Parsed<Expression> {
        let token = self.peek().cloned();
        match token {
            Some(Token::Number(value)) => {
                self.at += 1;
                Ok(Expression::Constant(value))
            }
            Some(Token::Text(text)) => {
                self.at += 1;
                Ok(Expression::Constant(Value::Text(text)))
            }
            Some(Token::Name(name)) => {
                self.at += 1;
                match name.as_str() {
                    "True" => Ok(Expression::Constant(Value::Int(1))),
                    "False" | "None" => Ok(Expression::Constant(Value::Int(0))),
                    _ if self.eat("(") => Ok(Expression::Call(name, self.items(")")?)),
                    _ => Ok(Expression::Name(name)),
                }
            }
            Some(Token::Sign("[")) => {
                self.at += 1;
                Ok(Expression::Tuple(self.items("]")?))
            }
            Some(Token::Sign("(")) => {
                self.at += 1;
                let inner =
                    if self.peek() == Some(&Token::Sign(")")) { Expression::Tuple(Vec::new()) } else { self.tuple()? };
                if self.eat(")") { Ok(inner) } else { Err(self.error("expected `)`")) }
            }
            _ => Err(self.error("expected a value")),
        }
    }

    fn items(&mut self, close: &'static str) -> Parsed<Vec<Expression>> {
        let mut items = Vec::new();
        while !self.eat(close) {
            items.push(self.expression()?);
            if !self.eat(",") {
                if self.eat(close) {
                    break;
                }
                return Err(self.error(&format!("expected `{close}`")));
            }
        }
        Ok(items)
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|token| &token.0)
    }

    fn take(&mut self, token: &Token) -> bool {
        let found = self.peek() == Some(token);
        self.at += usize::from(found);
        found
    }

    fn eat(&mut self, sign: &'static str) -> bool {
        self.take(&Token::Sign(sign))
    }

    fn eat_name(&mut self, name: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Name(found)) if found == name);
        self.at += usize::from(found);
        found
    }

    fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |token| token.1)
    }

    fn error(&self, message: &str) -> ScriptError {
        ScriptError::new(self.line(), format!("{message} in a code block"))
    }
}

fn infix(sign: &str) -> Option<Infix> {
    Some(match sign {
        "+" => Infix::Add,
        "-" => Infix::Subtract,
        "*" => Infix::Multiply,
        "/" => Infix::Divide,
        "//" => Infix::FloorDivide,
        "%" => Infix::Modulo,
        "&" => Infix::And,
        "|" => Infix::Or,
        "^" => Infix::Xor,
        "<<" => Infix::ShiftLeft,
        ">>" => Infix::ShiftRight,
        _ => return None,
    })
}
