//! A specification as a value: made by the parser, read by the generator.

use crate::lex::Position;

/// A name and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identifier {
    pub(crate) text: String,
    pub(crate) at: Position,
}

/// One definition of a file.
#[derive(Debug, Clone)]
pub(crate) enum Definition {
    /// `const NAME = value;`
    Constant { name: Identifier, value: i128 },
    /// `typedef declaration;` The name is the declaration's.
    Alias(TypedName),
    /// `enum name { .. };`
    Enumeration { name: Identifier, members: Vec<(Identifier, Value)> },
    /// `struct name { .. };`
    Structure { name: Identifier, fields: Vec<TypedName> },
    /// `union name switch (..) { .. };`
    Union { name: Identifier, body: Union },
}

impl Definition {
    pub(crate) fn name(&self) -> &Identifier {
        match self {
            Definition::Alias(declaration) => &declaration.name,
            Definition::Constant { name, .. }
            | Definition::Enumeration { name, .. }
            | Definition::Structure { name, .. }
            | Definition::Union { name, .. } => name,
        }
    }
}

/// A declared name with its type.
#[derive(Debug, Clone)]
pub(crate) struct TypedName {
    pub(crate) name: Identifier,
    pub(crate) shape: Shape,
}

/// The type of a declaration.
#[derive(Debug, Clone)]
pub(crate) enum Shape {
    /// `T x`
    One(Type),
    /// `T *x`
    Optional(Type),
    /// `T x[n]`
    Fixed(Type, Value),
    /// `T x<n>`, or `T x<>`
    Variable(Type, Option<Value>),
    /// `opaque x[n]`
    FixedOpaque(Value),
    /// `opaque x<n>`
    VariableOpaque(Option<Value>),
    /// `string x<n>`
    Text(Option<Value>),
}

#[derive(Debug, Clone)]
pub(crate) enum Type {
    /// A type of the language; the text is Rust's name for it.
    Basic(&'static str),
    /// A type of this specification.
    Named(Identifier),
}

/// A number, or the name of one.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Number(i128, Position),
    Named(Identifier),
}

impl Value {
    pub(crate) fn at(&self) -> Position {
        match self {
            Value::Number(_, at) => *at,
            Value::Named(name) => name.at,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Union {
    /// The type of the discriminant: `i32`, `u32`, `bool`, or an enumeration.
    pub(crate) discriminant: Type,
    /// The position of that type.
    pub(crate) at: Position,
    /// Each label with its arm; `None` is `void`.
    pub(crate) cases: Vec<(Value, Option<TypedName>)>,
    /// The arm of `default`, if there is one.
    pub(crate) default: Option<Option<TypedName>>,
}
