//! Running a code block.

use std::collections::HashMap;
use std::fmt;

use super::{Block, Comparison, Expression, Infix, Statement};
use crate::error::ScriptError;

/// A value of the language. Truth is an integer.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An integer.
    Int(i128),
    /// A number with a point.
    Real(f64),
    /// A string.
    Text(String),
    /// Several values.
    Tuple(Vec<Value>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Int(value) => value.fmt(f),
            Value::Real(value) => value.fmt(f),
            Value::Text(text) => text.fmt(f),
            Value::Tuple(items) => {
                let items: Vec<_> = items.iter().map(Value::to_string).collect();
                write!(f, "({})", items.join(", "))
            }
        }
    }
}

/// Source of the names other than variables: the connection's TCP_INFO, and constants.
pub trait Names {
    /// The value of `name`, `None` if there is no such name.
    ///
    /// # Errors
    /// The name is known but has no value now: one sentence.
    fn look_up(&mut self, name: &str) -> Result<Option<Value>, String>;
}

/// The variables of a script's blocks; they live from block to block.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: HashMap<String, Value>,
}

impl Environment {
    /// Runs `block`.
    ///
    /// # Errors
    /// An assertion that fails, or an expression that cannot be evaluated, with its line.
    pub fn run(&mut self, block: &Block, names: &mut dyn Names) -> Result<(), ScriptError> {
        for (line, statement) in &block.statements {
            self.statement(statement, names).map_err(|message| ScriptError::new(*line, message))?;
        }
        Ok(())
    }

    fn statement(&mut self, statement: &Statement, names: &mut dyn Names) -> Result<(), String> {
        match statement {
            Statement::Assert(condition, message, text) => {
                if truth(&self.value(condition, names)?) {
                    return Ok(());
                }
                let operands = self.operands(condition, names);
                let message = match message {
                    Some(message) => format!(": {}", self.value(message, names)?),
                    None => String::new(),
                };
                Err(format!("assertion failed: {text}{message}{operands}"))
            }
            Statement::Assign(name, operator, value) => {
                let value = self.value(value, names)?;
                let value = match operator {
                    Some(operator) => {
                        let old = self.value(&Expression::Name(name.clone()), names)?;
                        infix(*operator, old, value)?
                    }
                    None => value,
                };
                self.variables.insert(name.clone(), value);
                Ok(())
            }
            Statement::Evaluate(expression) => self.value(expression, names).map(|_| ()),
        }
    }

    /// The names in a failed comparison, with their values.
    fn operands(&self, condition: &Expression, names: &mut dyn Names) -> String {
        let mut found = Vec::new();
        mentioned(condition, &mut found);
        let shown: Vec<_> = found
            .iter()
            .filter(|name| name.starts_with("tcpi_"))
            .filter_map(|name| {
                let value = self.value(&Expression::Name((*name).to_owned()), names).ok()?;
                Some(format!("{name} is {value}"))
            })
            .collect();
        if shown.is_empty() { String::new() } else { format!(" ({})", shown.join(", ")) }
    }

    fn value(&self, expression: &Expression, names: &mut dyn Names) -> Result<Value, String> {
        Ok(match expression {
            Expression::Constant(value) => value.clone(),
            Expression::Name(name) => match self.variables.get(name) {
                Some(value) => value.clone(),
                None => {
                    names.look_up(name)?.ok_or_else(|| format!("not supported: the name {name} in a code block"))?
                }
            },
            Expression::Infix(operator, left, right) => {
                infix(*operator, self.value(left, names)?, self.value(right, names)?)?
            }
            Expression::Compare(first, rest) => {
                let mut left = self.value(first, names)?;
                for (comparison, right) in rest {
                    let right = self.value(right, names)?;
                    if !compare(*comparison, &left, &right)? {
                        return Ok(Value::Int(0));
                    }
                    left = right;
                }
                Value::Int(1)
            }
            Expression::And(left, right) => {
                let left = self.value(left, names)?;
                if truth(&left) { self.value(right, names)? } else { left }
            }
            Expression::Or(left, right) => {
                let left = self.value(left, names)?;
                if truth(&left) { left } else { self.value(right, names)? }
            }
            Expression::Not(inner) => Value::Int(i128::from(!truth(&self.value(inner, names)?))),
            Expression::Negate(inner) => infix(Infix::Subtract, Value::Int(0), self.value(inner, names)?)?,
            Expression::Invert(inner) => Value::Int(!integer(&self.value(inner, names)?)?),
            Expression::Choice(condition, value, other) => {
                let chosen = if truth(&self.value(condition, names)?) { value } else { other };
                self.value(chosen, names)?
            }
            Expression::Call(function, arguments) => {
                let arguments = self.values(arguments, names)?;
                call(function, arguments)?
            }
            Expression::Tuple(items) => Value::Tuple(self.values(items, names)?),
        })
    }

    fn values(&self, items: &[Expression], names: &mut dyn Names) -> Result<Vec<Value>, String> {
        items.iter().map(|item| self.value(item, names)).collect()
    }
}

fn mentioned<'e>(expression: &'e Expression, found: &mut Vec<&'e str>) {
    match expression {
        Expression::Name(name) if !found.contains(&name.as_str()) => found.push(name),
        Expression::Infix(_, left, right) | Expression::And(left, right) | Expression::Or(left, right) => {
            mentioned(left, found);
            mentioned(right, found);
        }
        Expression::Compare(first, rest) => {
            mentioned(first, found);
            rest.iter().for_each(|(_, right)| mentioned(right, found));
        }
        Expression::Not(inner) | Expression::Negate(inner) | Expression::Invert(inner) => mentioned(inner, found),
        _ => {}
    }
}

fn truth(value: &Value) -> bool {
    match value {
        Value::Int(value) => *value != 0,
        Value::Real(value) => *value != 0.0,
        Value::Text(text) => !text.is_empty(),
        Value::Tuple(items) => !items.is_empty(),
    }
}

fn integer(value: &Value) -> Result<i128, String> {
    match value {
        Value::Int(value) => Ok(*value),
        other => Err(format!("{other} is not an integer")),
    }
}

fn real(value: &Value) -> Result<f64, String> {
    match value {
        Value::Int(value) => Ok(*value as f64),
        Value::Real(value) => Ok(*value),
        other => Err(format!("{other} is not a number")),
    }
}

fn infix(operator: Infix, left: Value, right: Value) -> Result<Value, String> {
    if let (Infix::Modulo, Value::Text(format)) = (operator, &left) {
        return Ok(Value::Text(formatted(format, right)));
    }
    let overflow = || "a number in a code block becomes too large".to_owned();
    let checked = |value: Option<i128>| value.map(Value::Int).ok_or_else(overflow);
    if let (Value::Int(left), Value::Int(right)) = (&left, &right) {
        let (left, right) = (*left, *right);
        let shift = u32::try_from(right).ok().filter(|shift| *shift < 64);
        return match operator {
            Infix::Add => checked(left.checked_add(right)),
            Infix::Subtract => checked(left.checked_sub(right)),
            Infix::Multiply => checked(left.checked_mul(right)),
            Infix::Divide | Infix::FloorDivide | Infix::Modulo if right == 0 => Err("division by zero".into()),
            Infix::Divide => Ok(Value::Real(left as f64 / right as f64)),
            // Python rounds towards minus infinity.
            Infix::FloorDivide => checked((left - modulo(left, right)).checked_div(right)),
            Infix::Modulo => Ok(Value::Int(modulo(left, right))),
            Infix::And => Ok(Value::Int(left & right)),
            Infix::Or => Ok(Value::Int(left | right)),
            Infix::Xor => Ok(Value::Int(left ^ right)),
            Infix::ShiftLeft => checked(shift.and_then(|shift| left.checked_mul(1 << shift))),
            Infix::ShiftRight => checked(shift.map(|shift| left >> shift)),
        };
    }
    if let (Infix::Add, Value::Text(left), Value::Text(right)) = (operator, &left, &right) {
        return Ok(Value::Text(format!("{left}{right}")));
    }
    let (left, right) = (real(&left)?, real(&right)?);
    Ok(Value::Real(match operator {
        Infix::Add => left + right,
        Infix::Subtract => left - right,
        Infix::Multiply => left * right,
        Infix::Divide | Infix::FloorDivide | Infix::Modulo if right == 0.0 => return Err("division by zero".into()),
        Infix::Divide => left / right,
        Infix::FloorDivide => (left / right).floor(),
        Infix::Modulo => left - right * (left / right).floor(),
        _ => return Err("bits of a number with a point".into()),
    }))
}

/// The remainder with the divisor's sign. `right` is not 0.
fn modulo(left: i128, right: i128) -> i128 {
    let remainder = left.wrapping_rem(right);
    if remainder != 0 && (remainder < 0) != (right < 0) { remainder + right } else { remainder }
}

fn compare(comparison: Comparison, left: &Value, right: &Value) -> Result<bool, String> {
    use std::cmp::Ordering::{Equal, Greater, Less};
    if let Comparison::In | Comparison::NotIn = comparison {
        let Value::Tuple(items) = right else { return Err(format!("{right} has no members")) };
        return Ok(items.contains(left) == (comparison == Comparison::In));
    }
    let order = match (left, right) {
        (Value::Int(left), Value::Int(right)) => Some(left.cmp(right)),
        (Value::Text(left), Value::Text(right)) => Some(left.cmp(right)),
        (Value::Tuple(_), Value::Tuple(_)) => Some(if left == right { Equal } else { Less }),
        _ => real(left)?.partial_cmp(&real(right)?),
    };
    Ok(match comparison {
        Comparison::Equal => order == Some(Equal),
        Comparison::NotEqual => order != Some(Equal),
        Comparison::Less => order == Some(Less),
        Comparison::LessOrEqual => matches!(order, Some(Less | Equal)),
        Comparison::Greater => order == Some(Greater),
        Comparison::GreaterOrEqual => matches!(order, Some(Greater | Equal)),
        Comparison::In | Comparison::NotIn => false,
    })
}

fn call(function: &str, mut arguments: Vec<Value>) -> Result<Value, String> {
    if let ("min" | "max", [Value::Tuple(items)]) = (function, &arguments[..]) {
        arguments = items.clone();
    }
    match (function, &arguments[..]) {
        // Output of scripts is suppressed: a batch has hundreds of results.
        ("print", _) => Ok(Value::Tuple(Vec::new())),
        ("abs", [Value::Int(value)]) => Ok(Value::Int(value.saturating_abs())),
        ("abs", [Value::Real(value)]) => Ok(Value::Real(value.abs())),
        ("int", [value]) => real(value).map(|value| Value::Int(value as i128)),
        ("float", [value]) => real(value).map(Value::Real),
        ("str", [value]) => Ok(Value::Text(value.to_string())),
        ("len", [Value::Tuple(items)]) => Ok(Value::Int(items.len() as i128)),
        ("min" | "max", [first, rest @ ..]) => {
            let wanted = if function == "min" { Comparison::Less } else { Comparison::Greater };
            let mut best = first;
            for value in rest {
                if compare(wanted, value, best)? {
                    best = value;
                }
            }
            Ok(best.clone())
        }
        _ => Err(format!("not supported: the function {function} in a code block")),
    }
}

/// `'%d us' % value`: every `%` with its letter is replaced by the next value.
fn formatted(format: &str, values: Value) -> String {
    let mut values = match values {
        Value::Tuple(items) => items.into_iter(),
        single => vec![single].into_iter(),
    };
    let mut out = String::new();
    let mut rest = format.chars().peekable();
    while let Some(c) = rest.next() {
        if c != '%' {
            out.push(c);
        } else if rest.peek() == Some(&'%') {
            rest.next();
            out.push('%');
        } else {
            let letter = rest.by_ref().find(|c| c.is_ascii_alphabetic());
            let value = values.next();
            match (letter, value) {
                (Some('x'), Some(Value::Int(value))) => out.push_str(&format!("{value:x}")),
                (_, Some(value)) => out.push_str(&value.to_string()),
                (_, None) => {}
            }
        }
    }
    out
}
