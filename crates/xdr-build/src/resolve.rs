//! The rules for a specification that are not in its grammar (RFC 4506 section 6.4), and the names for the generated
//! text.

use std::collections::{HashMap, HashSet};

use crate::lex::Position;
use crate::names::{numbered, snake, upper_camel};
use crate::tree::{Definition, Identifier, Shape, Type, TypedName, Union, Value};
use crate::{SpecificationError, names};

/// The meaning of the names of a specification.
#[derive(Debug)]
pub(crate) struct Names<'a> {
    definitions: HashMap<&'a str, &'a Definition>,
    numbers: HashMap<&'a str, i128>,
    /// The members of each enumeration with their numbers.
    members: HashMap<&'a str, Vec<(&'a str, i128)>>,
}

/// The discriminant of a union.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Discriminant<'a> {
    Int,
    Unsigned,
    Bool,
    Enumeration(&'a str),
}

type Resolved<T> = Result<T, SpecificationError>;

/// Looks all names up and checks all rules.
pub(crate) fn resolve(definitions: &[Definition]) -> Resolved<Names<'_>> {
    let names = Names::of(definitions)?;
    let mut rust_names = HashMap::new();
    for definition in definitions {
        let name = definition.name();
        if !matches!(definition, Definition::Constant { .. })
            && let Some(other) = rust_names.insert(upper_camel(&name.text), &name.text)
        {
            return Err(name.at.error(format!("`{}` and `{other}` would have the same name in Rust", name.text)));
        }
        names.check(definition)?;
    }
    for definition in definitions {
        names.finite(definition, &mut Vec::new())?;
    }
    Ok(names)
}

impl<'a> Names<'a> {
    fn of(definitions: &'a [Definition]) -> Resolved<Names<'a>> {
        let mut names = Names {
            definitions: HashMap::new(),
            numbers: HashMap::from([("TRUE", 1), ("FALSE", 0)]),
            members: HashMap::new(),
        };
        let mut taken = HashSet::from(["TRUE", "FALSE"]);
        let mut take = |name: &'a Identifier| match taken.insert(&name.text) {
            true => Ok(()),
            false => Err(name.at.error(format!("`{}` is declared twice", name.text))),
        };
        for definition in definitions {
            take(definition.name())?;
            match definition {
                Definition::Constant { name, value } => {
                    names.numbers.insert(&name.text, *value);
                }
                Definition::Enumeration { name, members } => {
                    let mut numbered: Vec<(&str, i128)> = Vec::new();
                    for (member, value) in members {
                        take(member)?;
                        let number = names.number(value)?;
                        range(number, value.at(), i32::MIN.into(), i32::MAX.into(), "the number of a member")?;
                        if let Some((other, _)) = numbered.iter().find(|(_, taken)| *taken == number) {
                            return Err(member.at.error(format!("`{}` has the number of `{other}`", member.text)));
                        }
                        numbered.push((&member.text, number));
                        names.numbers.insert(&member.text, number);
                    }
                    distinct(members.iter().map(|(member, _)| (upper_camel(&member.text), member)))?;
                    names.members.insert(&name.text, numbered);
                }
                _ => {}
            }
            names.definitions.insert(&definition.name().text, definition);
        }
        Ok(names)
    }

    /// The number that `value` is. Its name must be declared before it.
    pub(crate) fn number(&self, value: &Value) -> Resolved<i128> {
        match value {
            Value::Number(number, _) => Ok(*number),
            Value::Named(name) => self.numbers.get(name.text.as_str()).copied().ok_or_else(|| {
                name.at.error(format!("`{}` is no constant and no member of an enumeration before it", name.text))
            }),
        }
    }

    /// The members of the enumeration `name`, with their numbers.
    pub(crate) fn members(&self, name: &str) -> &[(&'a str, i128)] {
        &self.members[name]
    }

    /// The discriminant of a union, with aliases resolved.
    pub(crate) fn discriminant(&self, of: &Type, at: Position) -> Resolved<Discriminant<'a>> {
        let mut of = of;
        // Each step follows an alias to another; more steps than there are definitions go round in a circle.
        for _ in 0..=self.definitions.len() {
            match of {
                Type::Basic("i32") => return Ok(Discriminant::Int),
                Type::Basic("u32") => return Ok(Discriminant::Unsigned),
                Type::Basic("bool") => return Ok(Discriminant::Bool),
                Type::Basic(_) => break,
                Type::Named(name) => match self.type_named(name)? {
                    Definition::Enumeration { name, .. } => return Ok(Discriminant::Enumeration(&name.text)),
                    Definition::Alias(TypedName { shape: Shape::One(aliased), .. }) => of = aliased,
                    _ => break,
                },
            }
        }
        Err(at.error("a union switches on `int`, `unsigned int`, `bool` or an enumeration (section 4.15)"))
    }

    fn type_named(&self, name: &Identifier) -> Resolved<&'a Definition> {
        match self.definitions.get(name.text.as_str()) {
            Some(Definition::Constant { .. }) => {
                Err(name.at.error(format!("`{}` is a constant, not a type", name.text)))
            }
            Some(definition) => Ok(definition),
            None => Err(name.at.error(format!("there is no type `{}`", name.text))),
        }
    }

    fn check(&self, definition: &Definition) -> Resolved<()> {
        match definition {
            Definition::Constant { name, value } => {
                range(*value, name.at, i64::MIN.into(), u64::MAX.into(), "a constant")
            }
            Definition::Alias(declaration) => self.check_declaration(declaration),
            Definition::Enumeration { .. } => Ok(()),
            Definition::Structure { fields, .. } => {
                distinct(fields.iter().map(|field| (snake(&field.name.text), &field.name)))?;
                fields.iter().try_for_each(|field| self.check_declaration(field))
            }
            Definition::Union { body, .. } => self.check_union(body),
        }
    }

    fn check_declaration(&self, declaration: &TypedName) -> Resolved<()> {
        let bound = |value: &Value, least| range(self.number(value)?, value.at(), least, u32::MAX.into(), "a length");
        match &declaration.shape {
            Shape::Fixed(_, length) | Shape::FixedOpaque(length) => bound(length, 1)?,
            Shape::Variable(_, Some(length)) | Shape::VariableOpaque(Some(length)) | Shape::Text(Some(length)) => {
                bound(length, 0)?;
            }
            _ => {}
        }
        match named(declaration) {
            Some(name) => self.type_named(name).map(|_| ()),
            None => Ok(()),
        }
    }

    fn check_union(&self, body: &Union) -> Resolved<()> {
        let discriminant = self.discriminant(&body.discriminant, body.at)?;
        let mut seen = HashSet::new();
        for (label, arm) in &body.cases {
            let number = self.number(label)?;
            let at = label.at();
            match &discriminant {
                Discriminant::Int => range(number, at, i32::MIN.into(), i32::MAX.into(), "a case")?,
                Discriminant::Unsigned => range(number, at, 0, u32::MAX.into(), "a case")?,
                Discriminant::Bool => range(number, at, 0, 1, "a case")?,
                Discriminant::Enumeration(name) => {
                    if !self.members(name).iter().any(|(_, member)| *member == number) {
                        return Err(at.error(format!("`{name}` has no member with the number {number}")));
                    }
                }
            }
            if !seen.insert(number) {
                return Err(at.error(format!("there are two cases for {number}")));
            }
            arm.iter().try_for_each(|arm| self.check_declaration(arm))?;
        }
        body.default.iter().flatten().try_for_each(|arm| self.check_declaration(arm))
    }

    /// The variant for the number `label` of a union that switches on `discriminant`.
    pub(crate) fn variant(&self, discriminant: &Discriminant<'_>, label: i128) -> String {
        match discriminant {
            Discriminant::Int | Discriminant::Unsigned => numbered(label),
            Discriminant::Bool => if label == 0 { "False" } else { "True" }.into(),
            Discriminant::Enumeration(name) => {
                let member = self.members(name).iter().find(|(_, number)| *number == label);
                names::upper_camel(member.expect("check_union found the member").0)
            }
        }
    }

    /// Refuses a type that contains itself otherwise than by `*` or a variable-length array: no value of it would end.
    fn finite(&self, definition: &'a Definition, inside: &mut Vec<&'a str>) -> Resolved<()> {
        let name = definition.name();
        if inside.contains(&name.text.as_str()) {
            return Err(name
                .at
                .error(format!("`{0}` contains a `{0}`: make one of them optional, with `*`", name.text)));
        }
        inside.push(&name.text);
        for declaration in contained(definition) {
            if let (Shape::One(_) | Shape::Fixed(..), Some(name)) = (&declaration.shape, named(declaration)) {
                self.finite(self.type_named(name)?, inside)?;
            }
        }
        inside.pop();
        Ok(())
    }
}

/// The type of this specification that a declaration names.
fn named(declaration: &TypedName) -> Option<&Identifier> {
    match &declaration.shape {
        Shape::One(Type::Named(name))
        | Shape::Optional(Type::Named(name))
        | Shape::Fixed(Type::Named(name), _)
        | Shape::Variable(Type::Named(name), _) => Some(name),
        _ => None,
    }
}

/// The declarations of which a value of this definition is made.
fn contained(definition: &Definition) -> Vec<&TypedName> {
    match definition {
        Definition::Constant { .. } | Definition::Enumeration { .. } => Vec::new(),
        Definition::Alias(declaration) => vec![declaration],
        Definition::Structure { fields, .. } => fields.iter().collect(),
        Definition::Union { body, .. } => {
            body.cases.iter().filter_map(|(_, arm)| arm.as_ref()).chain(body.default.iter().flatten()).collect()
        }
    }
}

fn range(number: i128, at: Position, least: i128, most: i128, what: &str) -> Resolved<()> {
    match (least..=most).contains(&number) {
        true => Ok(()),
        false => Err(at.error(format!("{what} is between {least} and {most} here, not {number}"))),
    }
}

/// Refuses two names of one scope that become the same in Rust.
fn distinct<'n>(names: impl Iterator<Item = (String, &'n Identifier)>) -> Resolved<()> {
    let mut seen: HashMap<String, &Identifier> = HashMap::new();
    for (rust, name) in names {
        if let Some(other) = seen.insert(rust, name) {
            return Err(name
                .at
                .error(format!("`{}` and `{}` would have the same name in Rust", name.text, other.text)));
        }
    }
    Ok(())
}
