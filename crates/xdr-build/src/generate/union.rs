//! A union: an `enum` whose variants hold the value of their case.

use super::{DERIVE, Implementation, lines, rust_type, unassigned};
use crate::names::upper_camel;
use crate::resolve::{Discriminant, Names};
use crate::tree::{Identifier, TypedName, Union, Value};

pub(super) fn union(name: &Identifier, body: &Union, names: &Names<'_>) -> String {
    let rust = upper_camel(&name.text);
    let discriminant = names.discriminant(&body.discriminant, body.at).expect("resolve has found it");
    let variants = variants(body, &discriminant, names);
    let open = variants.iter().any(|variant| matches!(variant.stands_for, Numbers::Others(_)));
    let unassigned = if open { String::new() } else { unassigned(&rust, "number: number as i32") };
    let implementation = Implementation {
        least: "::xdr::UNIT".into(),
        fixed: "None".into(),
        length: format!("match self {{ {}}}", lines(&variants, |variant| variant.length_arm(&rust))),
        encode: format!("        match self {{\n{}        }}\n", lines(&variants, |variant| variant.encode_arm(&rust))),
        decode: format!(
            "        match from.unit()? {{\n{}{unassigned}        }}\n",
            lines(&variants, |variant| variant.decode_arm(&rust))
        ),
    };
    format!(
        "
/// `{}` of the specification.
{DERIVE}
pub enum {rust} {{
{}}}
{}",
        name.text,
        lines(&variants, UnionVariant::declaration),
        implementation.text(&rust)
    )
}

/// A variant of the `enum`.
struct UnionVariant {
    name: String,
    stands_for: Numbers,
    /// The Rust type of its value; none for `void`.
    holds: Option<String>,
}

/// The discriminants of a variant.
enum Numbers {
    One(i128),
    /// All without a case, for a discriminant of this Rust type.
    Others(&'static str),
}

impl UnionVariant {
    fn declaration(&self) -> String {
        let holds = self.holds.as_deref();
        match (&self.stands_for, holds) {
            (Numbers::One(number), None) => format!("    /// The case of {number}.\n    {},\n", self.name),
            (Numbers::One(number), Some(of)) => format!("    /// The case of {number}.\n    {}({of}),\n", self.name),
            (Numbers::Others(of), holds) => {
                let holds = holds.map_or(String::new(), |of| format!(", {of}"));
                format!("    /// Every number without a case of its own.\n    {}({of}{holds}),\n", self.name)
            }
        }
    }

    /// The pattern that takes the variant apart, with `number` as the name of its number.
    fn pattern(&self, rust: &str, number: &str) -> String {
        let parts = match (&self.stands_for, &self.holds) {
            (Numbers::One(_), None) => String::new(),
            (Numbers::One(_), Some(_)) => "(value)".into(),
            (Numbers::Others(_), None) => format!("({number})"),
            (Numbers::Others(_), Some(_)) => format!("({number}, value)"),
        };
        format!("{rust}::{}{parts}", self.name)
    }

    fn length_arm(&self, rust: &str) -> String {
        let of_value = if self.holds.is_some() { " + ::xdr::Xdr::encoded_len(value)" } else { "" };
        format!("{} => ::xdr::UNIT{of_value}, ", self.pattern(rust, "_"))
    }

    fn encode_arm(&self, rust: &str) -> String {
        let unit = match self.stands_for {
            Numbers::One(number) => (number as u32).to_string(),
            Numbers::Others("u32") => "*number".into(),
            Numbers::Others(_) => "*number as u32".into(),
        };
        let pattern = self.pattern(rust, "number");
        match self.holds {
            None => format!("            {pattern} => to.unit({unit}),\n"),
            Some(_) => format!(
                "            {pattern} => {{
                to.unit({unit});
                ::xdr::Xdr::encode(value, to);
            }}
"
            ),
        }
    }

    fn decode_arm(&self, rust: &str) -> String {
        let value = "::xdr::Xdr::decode(from)?";
        let (unit, number) = match self.stands_for {
            Numbers::One(number) => ((number as u32).to_string(), ""),
            Numbers::Others("u32") => ("number".into(), "number"),
            Numbers::Others(_) => ("number".into(), "number as i32"),
        };
        let parts = match (number, &self.holds) {
            ("", None) => String::new(),
            ("", Some(_)) => format!("({value})"),
            (number, None) => format!("({number})"),
            (number, Some(_)) => format!("({number}, {value})"),
        };
        format!("            {unit} => Ok({rust}::{}{parts}),\n", self.name)
    }
}

/// The variants of a union: of its cases, and of its default. The default of an enumeration or a Boolean is a variant
/// for each number that has no case.
fn variants(body: &Union, discriminant: &Discriminant<'_>, names: &Names<'_>) -> Vec<UnionVariant> {
    let holds = |arm: &Option<TypedName>| arm.as_ref().map(|arm| rust_type(&arm.shape, names));
    let one = |number: i128, arm: &Option<TypedName>| UnionVariant {
        name: names.variant(discriminant, number),
        stands_for: Numbers::One(number),
        holds: holds(arm),
    };
    let number = |label: &Value| names.number(label).expect("resolve has found it");
    let cases: Vec<i128> = body.cases.iter().map(|(label, _)| number(label)).collect();
    let mut variants: Vec<UnionVariant> =
        cases.iter().zip(&body.cases).map(|(&number, (_, arm))| one(number, arm)).collect();
    let Some(default) = &body.default else { return variants };
    let others = |of| UnionVariant { name: "Default".into(), stands_for: Numbers::Others(of), holds: holds(default) };
    let without_case = |number: &i128| !cases.contains(number);
    match discriminant {
        Discriminant::Int => variants.push(others("i32")),
        Discriminant::Unsigned => variants.push(others("u32")),
        Discriminant::Bool => {
            variants.extend([0, 1].into_iter().filter(without_case).map(|number| one(number, default)))
        }
        Discriminant::Enumeration(name) => {
            let members = names.members(name).iter().map(|(_, number)| *number);
            variants.extend(members.filter(without_case).map(|number| one(number, default)));
        }
    }
    variants
}
