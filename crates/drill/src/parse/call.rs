//! System calls with their arguments and results.

use super::{Parsed, Parser};
use crate::lex::Kind;
use crate::script::{Call, Expr, Field, Nanos, Operator};

impl Parser {
    /// `read(4, ..., 1000) = -1 EAGAIN (Resource temporarily unavailable)`
    pub(super) fn call(&mut self, end: Option<Nanos>) -> Parsed<Call> {
        let name = self.word("a system call")?;
        self.want('(')?;
        let args = self.list(')')?;
        self.want('=')?;
        // Not a sum: a plus would belong to the next event.
        let result = self.union()?;
        let errno = match self.peek() {
            Some(Kind::Word(word)) if word.starts_with('E') && !matches!(self.peek_at(1), Some(Kind::Sign('='))) => {
                let errno = word.clone();
                self.at += 1;
                Some(errno)
            }
            _ => None,
        };
        self.note()?;
        Ok(Call { end, name, args, result, errno })
    }

    /// A remark in parentheses, as in strace's output.
    fn note(&mut self) -> Parsed<()> {
        if !self.eat('(') {
            return Ok(());
        }
        let mut open = 1;
        while open > 0 {
            match self.peek() {
                Some(Kind::Sign('(')) => open += 1,
                Some(Kind::Sign(')')) => open -= 1,
                Some(_) => {}
                None => return Err(self.expected("`)`")),
            }
            self.at += 1;
        }
        Ok(())
    }

    fn list(&mut self, close: char) -> Parsed<Vec<Expr>> {
        let mut items = Vec::new();
        if self.eat(close) {
            return Ok(items);
        }
        loop {
            items.push(self.expression()?);
            if self.eat(close) {
                return Ok(items);
            }
            self.want(',')?;
        }
    }

    fn expression(&mut self) -> Parsed<Expr> {
        let mut left = self.product()?;
        loop {
            let operator = match self.peek() {
                Some(Kind::Sign('|')) => Operator::Or,
                Some(Kind::Sign('&')) => Operator::And,
                Some(Kind::Sign('+')) => Operator::Add,
                Some(Kind::Shift(true)) => Operator::ShiftLeft,
                _ => return Ok(left),
            };
            self.at += 1;
            left = Expr::Binary(operator, Box::new(left), Box::new(self.product()?));
        }
    }

    fn product(&mut self) -> Parsed<Expr> {
        let mut left = self.primary()?;
        while self.eat('*') {
            left = Expr::Binary(Operator::Multiply, Box::new(left), Box::new(self.primary()?));
        }
        Ok(left)
    }

    /// Operands joined by `|` alone.
    fn union(&mut self) -> Parsed<Expr> {
        let mut left = self.primary()?;
        while self.eat('|') {
            left = Expr::Binary(Operator::Or, Box::new(left), Box::new(self.primary()?));
        }
        Ok(left)
    }

    fn primary(&mut self) -> Parsed<Expr> {
        self.deeper()?;
        let result = self.operand();
        self.depth -= 1;
        result
    }

    fn operand(&mut self) -> Parsed<Expr> {
        let kind = self.peek().cloned();
        self.at += 1;
        match kind {
            Some(Kind::Ellipsis) => Ok(Expr::Ellipsis),
            Some(Kind::Integer(value, _) | Kind::Hex(value, _)) => Ok(Expr::Int(value)),
            Some(Kind::Text(text)) => Ok(self.string(text)),
            Some(Kind::Word(word)) if self.eat('(') => Ok(Expr::Apply(word, self.list(')')?)),
            Some(Kind::Word(word)) => Ok(Expr::Word(word)),
            Some(Kind::Sign('[')) => Ok(Expr::List(self.list(']')?)),
            Some(Kind::Sign('{')) => Ok(Expr::Struct(self.fields()?)),
            Some(Kind::Sign('~')) => Ok(Expr::Not(Box::new(self.primary()?))),
            Some(Kind::Sign('(')) => {
                let inner = self.expression()?;
                self.want(')')?;
                Ok(inner)
            }
            _ => {
                self.at -= 1;
                Err(self.expected("a value"))
            }
        }
    }

    /// Adjacent strings are joined; `"abc"...` is a string of which only the beginning counts.
    fn string(&mut self, mut text: Vec<u8>) -> Expr {
        while let Some(Kind::Text(more)) = self.peek() {
            text.extend_from_slice(more);
            self.at += 1;
        }
        if self.peek() == Some(&Kind::Ellipsis) {
            self.at += 1;
        }
        Expr::Text(text)
    }

    fn fields(&mut self) -> Parsed<Vec<Field>> {
        let mut fields = Vec::new();
        if self.eat('}') {
            return Ok(fields);
        }
        loop {
            fields.push(self.field()?);
            if self.eat('}') {
                return Ok(fields);
            }
            self.want(',')?;
        }
    }

    fn field(&mut self) -> Parsed<Field> {
        let name = match (self.peek(), self.peek_at(1)) {
            (Some(Kind::Word(word)), Some(Kind::Sign('=' | '('))) => word.clone(),
            _ => return Ok(Field { name: None, value: self.expression()? }),
        };
        self.at += 1;
        // `msg_iov(1)=[...]`: the count is redundant.
        if self.eat('(') {
            let args = self.list(')')?;
            if !self.eat('=') {
                return Ok(Field { name: None, value: Expr::Apply(name, args) });
            }
        } else {
            self.want('=')?;
        }
        Ok(Field { name: Some(name), value: self.expression()? })
    }
}
