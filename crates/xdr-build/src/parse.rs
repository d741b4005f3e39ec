//! The grammar of RFC 4506 section 6.3, by recursive descent: a function for each rule.
//!
//! A type declared inside another (`struct { int x; } point;`) has no name in XDR and needs one in Rust. It becomes a
//! definition of its own, before the one that it stands in, named for that one and for its field. The field's name
//! stands behind the type, so the parser looks ahead over the braces.

use crate::SpecificationError;
use crate::lex::{Position, Token};
use crate::tree::{Definition, Identifier, Shape, Type, TypedName, Union, Value};

/// Words that name nothing (section 6.4).
const KEYWORDS: [&str; 20] = [
    "bool",
    "case",
    "const",
    "default",
    "double",
    "enum",
    "float",
    "hyper",
    "int",
    "opaque",
    "quadruple",
    "string",
    "struct",
    "switch",
    "typedef",
    "union",
    "unsigned",
    "void",
    "program",
    "version",
];

/// How deep types may be declared inside each other.
const DEPTH: usize = 32;

/// All definitions of a file, in order, those that were declared inside another before it.
pub(crate) fn specification(tokens: Vec<(Token, Position)>) -> Result<Vec<Definition>, SpecificationError> {
    let mut parser = Parser { tokens, next: 0, definitions: Vec::new(), owners: Vec::new() };
    while *parser.peek() != Token::End {
        parser.definition()?;
    }
    Ok(parser.definitions)
}

struct Parser {
    tokens: Vec<(Token, Position)>,
    next: usize,
    definitions: Vec<Definition>,
    /// The names of the definitions and fields that enclose the next token.
    owners: Vec<String>,
}

type Parsed<T> = Result<T, SpecificationError>;

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.next].0
    }

    fn at(&self) -> Position {
        self.tokens[self.next].1
    }

    fn advance(&mut self) -> (Token, Position) {
        let token = self.tokens[self.next].clone();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }

    fn expected<T>(&self, what: &str) -> Parsed<T> {
        Err(self.at().error(format!("expected {what}, found {}", self.peek().shown())))
    }

    fn is_mark(&self, mark: char) -> bool {
        *self.peek() == Token::Mark(mark)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Word(found) if found == word)
    }

    /// Takes `mark` if it is next.
    fn accept(&mut self, mark: char) -> bool {
        let found = self.is_mark(mark);
        if found {
            self.advance();
        }
        found
    }

    fn accept_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        if found {
            self.advance();
        }
        found
    }

    fn mark(&mut self, mark: char) -> Parsed<()> {
        if self.accept(mark) { Ok(()) } else { self.expected(&format!("`{mark}`")) }
    }

    fn word(&mut self, word: &str) -> Parsed<()> {
        if self.accept_word(word) { Ok(()) } else { self.expected(&format!("`{word}`")) }
    }

    fn name(&mut self) -> Parsed<Identifier> {
        match self.peek().clone() {
            Token::Word(text) if !KEYWORDS.contains(&text.as_str()) => {
                let (_, at) = self.advance();
                Ok(Identifier { text, at })
            }
            _ => self.expected("a name"),
        }
    }

    /// A number, or the name of one.
    fn value(&mut self) -> Parsed<Value> {
        match *self.peek() {
            Token::Number(number) => Ok(Value::Number(number, self.advance().1)),
            Token::Word(_) => self.name().map(Value::Named),
            _ => self.expected("a number or a name"),
        }
    }

    fn definition(&mut self) -> Parsed<()> {
        let (keyword, at) = self.advance();
        let Token::Word(keyword) = keyword else {
            return Err(at.error(format!("expected a definition, found {}", keyword.shown())));
        };
        match keyword.as_str() {
            "const" => {
                let name = self.name()?;
                self.mark('=')?;
                let Token::Number(value) = *self.peek() else { return self.expected("a number") };
                self.advance();
                self.definitions.push(Definition::Constant { name, value });
            }
            "typedef" => self.alias()?,
            "enum" | "struct" | "union" => {
                let name = self.name()?;
                self.body(&keyword, name)?;
            }
            "program" => {
                return Err(at.error("a `program` belongs to remote procedure calls (RFC 5531), not to XDR: delete it"));
            }
            other => {
                return Err(
                    at.error(format!("expected `const`, `typedef`, `enum`, `struct` or `union`, found `{other}`"))
                );
            }
        }
        self.mark(';')
    }

    /// `typedef` and a declaration. A type that is declared in it has the alias's name, unless the alias is of
    /// several such values.
    fn alias(&mut self) -> Parsed<()> {
        let inline = ["enum", "struct", "union"].into_iter().find(|keyword| self.is_word(keyword));
        if let (Some(keyword), Some((name, false))) = (inline, self.declared_after_braces()) {
            self.advance();
            self.body(keyword, name)?;
            self.name()?;
            return Ok(());
        }
        match self.declaration()? {
            Some(declaration) => self.definitions.push(Definition::Alias(declaration)),
            None => return self.expected("a type other than `void` before it"),
        }
        Ok(())
    }

    /// The name that the braces after the next keyword are followed by, and whether the declaration is of another
    /// kind than one value.
    fn declared_after_braces(&self) -> Option<(Identifier, bool)> {
        let open = self.next + self.tokens[self.next..].iter().position(|(token, _)| *token == Token::Mark('{'))?;
        let mut depth = 0;
        let close = open
            + self.tokens[open..].iter().position(|(token, _)| {
                match token {
                    Token::Mark('{') => depth += 1,
                    Token::Mark('}') => depth -= 1,
                    _ => {}
                }
                depth == 0
            })?;
        let mut after = self.tokens[close + 1..].iter();
        let (mut token, mut at) = after.next()?.clone();
        let pointer = token == Token::Mark('*');
        if pointer {
            (token, at) = after.next()?.clone();
        }
        let several = pointer || matches!(after.next(), Some((Token::Mark('[' | '<'), _)));
        match token {
            Token::Word(text) => Some((Identifier { text, at }, several)),
            _ => None,
        }
    }

    /// The text after the name in `enum name { .. }`, or after the keyword in a type without a name.
    fn body(&mut self, keyword: &str, name: Identifier) -> Parsed<()> {
        if self.owners.len() >= DEPTH {
            return Err(self.at().error(format!("types are declared inside each other more than {DEPTH} deep")));
        }
        self.owners.push(name.text.clone());
        let definition = match keyword {
            "enum" => Definition::Enumeration { members: self.members()?, name },
            "struct" => Definition::Structure { fields: self.fields()?, name },
            _ => Definition::Union { body: self.union()?, name },
        };
        self.owners.pop();
        self.definitions.push(definition);
        Ok(())
    }

    fn members(&mut self) -> Parsed<Vec<(Identifier, Value)>> {
        self.mark('{')?;
        let mut members = Vec::new();
        loop {
            let name = self.name()?;
            self.mark('=')?;
            members.push((name, self.value()?));
            if !self.accept(',') {
                break;
            }
        }
        self.mark('}')?;
        Ok(members)
    }

    fn fields(&mut self) -> Parsed<Vec<TypedName>> {
        self.mark('{')?;
        let mut fields = Vec::new();
        loop {
            let at = self.at();
            fields.push(self.declaration()?.ok_or_else(|| at.error("a field cannot be `void`"))?);
            self.mark(';')?;
            if self.accept('}') {
                return Ok(fields);
            }
        }
    }

    fn union(&mut self) -> Parsed<Union> {
        self.word("switch")?;
        self.mark('(')?;
        let at = self.at();
        let Some(TypedName { shape: Shape::One(discriminant), .. }) = self.declaration()? else {
            return Err(at.error("a union switches on an integer, a Boolean or an enumeration"));
        };
        self.mark(')')?;
        self.mark('{')?;
        let mut cases = Vec::new();
        while self.is_word("case") {
            self.cases(&mut cases)?;
        }
        if cases.is_empty() {
            return self.expected("`case`");
        }
        let default = match self.accept_word("default") {
            true => {
                self.mark(':')?;
                let arm = self.declaration()?;
                self.mark(';')?;
                Some(arm)
            }
            false => None,
        };
        self.mark('}')?;
        Ok(Union { discriminant, at, cases, default })
    }

    /// One or more labels and their arm.
    fn cases(&mut self, cases: &mut Vec<(Value, Option<TypedName>)>) -> Parsed<()> {
        let mut labels = Vec::new();
        while self.accept_word("case") {
            labels.push(self.value()?);
            self.mark(':')?;
        }
        let arm = self.declaration()?;
        self.mark(';')?;
        cases.extend(labels.into_iter().map(|label| (label, arm.clone())));
        Ok(())
    }

    /// A declaration; none is `void`.
    fn declaration(&mut self) -> Parsed<Option<TypedName>> {
        if self.accept_word("void") {
            return Ok(None);
        }
        let (name, shape) = match () {
            () if self.accept_word("opaque") => {
                let name = self.name()?;
                match self.is_mark('[') {
                    true => (name, Shape::FixedOpaque(self.fixed()?)),
                    false => (name, Shape::VariableOpaque(self.variable()?)),
                }
            }
            () if self.accept_word("string") => (self.name()?, Shape::Text(self.variable()?)),
            () => self.typed()?,
        };
        Ok(Some(TypedName { name, shape }))
    }

    fn typed(&mut self) -> Parsed<(Identifier, Shape)> {
        let of = self.type_specifier()?;
        if self.accept('*') {
            return Ok((self.name()?, Shape::Optional(of)));
        }
        let name = self.name()?;
        let shape = match () {
            () if self.is_mark('[') => Shape::Fixed(of, self.fixed()?),
            () if self.is_mark('<') => Shape::Variable(of, self.variable()?),
            () => Shape::One(of),
        };
        Ok((name, shape))
    }

    fn fixed(&mut self) -> Parsed<Value> {
        self.mark('[')?;
        let value = self.value()?;
        self.mark(']')?;
        Ok(value)
    }

    fn variable(&mut self) -> Parsed<Option<Value>> {
        if !self.accept('<') {
            return self.expected("`<`");
        }
        if self.accept('>') {
            return Ok(None);
        }
        let value = self.value()?;
        self.mark('>')?;
        Ok(Some(value))
    }

    fn type_specifier(&mut self) -> Parsed<Type> {
        let Token::Word(word) = self.peek().clone() else { return self.expected("a type") };
        let basic = match word.as_str() {
            "unsigned" => {
                self.advance();
                match () {
                    () if self.is_word("int") => "u32",
                    () if self.is_word("hyper") => "u64",
                    () => return self.expected("`int` or `hyper` after `unsigned`"),
                }
            }
            "int" => "i32",
            "hyper" => "i64",
            "float" => "f32",
            "double" => "f64",
            "quadruple" => "::xdr::Quadruple",
            "bool" => "bool",
            "enum" | "struct" | "union" => return self.inline(&word),
            _ => return self.name().map(Type::Named),
        };
        self.advance();
        Ok(Type::Basic(basic))
    }

    /// A type without a name of its own.
    fn inline(&mut self, keyword: &str) -> Parsed<Type> {
        let (_, at) = self.advance();
        if !self.is_mark('{') && !self.is_word("switch") {
            let found = self.peek().shown();
            let message = format!("expected `{{`, found {found}: a type is used by its name, without `{keyword}`");
            return Err(self.at().error(message));
        }
        let Some((field, _)) = self.declared_after_braces() else {
            return Err(at.error(format!("expected a name after the braces of this `{keyword}`")));
        };
        let owner = self.owners.last().cloned();
        let text = owner.map_or_else(|| format!("{}_item", field.text), |owner| format!("{owner}_{}", field.text));
        let name = Identifier { text, at };
        self.body(keyword, name.clone())?;
        Ok(Type::Named(name))
    }
}
