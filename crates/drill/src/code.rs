//! The code blocks `%{ ... }%`: the part of Python that packet scripts use for their assertions, without Python.
//!
//! Statements are `assert`, assignments, `print` and `pass`; expressions have Python's operators, chained comparisons,
//! conditional expressions, strings with `%`, and a handful of functions. Names are variables of the script, fields of
//! TCP_INFO (`tcpi_...`) and constants. Anything else is an error that names the line.

mod eval;
mod parse;

pub use eval::{Environment, Names, Value};
pub(crate) use parse::parse;

/// A parsed code block.
#[derive(Clone, Debug, Default)]
pub struct Block {
    pub(crate) statements: Vec<(u32, Statement)>,
}

#[derive(Clone, Debug)]
pub(crate) enum Statement {
    Assert(Expression, Option<Expression>, String),
    /// The name, and the operator of an augmented assignment such as `+=`.
    Assign(String, Option<Infix>, Expression),
    /// Evaluated and discarded: `print(...)`.
    Evaluate(Expression),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expression {
    Constant(Value),
    Name(String),
    Infix(Infix, Box<Expression>, Box<Expression>),
    /// `a < b <= c`
    Compare(Box<Expression>, Vec<(Comparison, Expression)>),
    And(Box<Expression>, Box<Expression>),
    Or(Box<Expression>, Box<Expression>),
    Not(Box<Expression>),
    Negate(Box<Expression>),
    Invert(Box<Expression>),
    /// `value if condition else other`: condition, value, other.
    Choice(Box<Expression>, Box<Expression>, Box<Expression>),
    Call(String, Vec<Expression>),
    Tuple(Vec<Expression>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Infix {
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Modulo,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    NotIn,
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Info;

    impl Names for Info {
        fn look_up(&mut self, name: &str) -> Result<Option<Value>, String> {
            Ok(match name {
                "tcpi_snd_cwnd" => Some(Value::Int(10)),
                "TCP_CA_Open" => Some(Value::Int(0)),
                _ => None,
            })
        }
    }

    fn run(code: &str) -> Result<(), String> {
        let block = parse(code, 1).map_err(|error| error.to_string())?;
        Environment::default().run(&block, &mut Info).map_err(|error| error.to_string())
    }

    #[test]
    fn assertions_hold_and_fail() {
        assert_eq!(run("assert tcpi_snd_cwnd == 10, tcpi_snd_cwnd"), Ok(()));
        assert_eq!(run("assert 5 <= tcpi_snd_cwnd <= 20, 'cwnd=%d us' % tcpi_snd_cwnd"), Ok(()));
        assert_eq!(run("assert (tcpi_snd_cwnd & 2) != 0 and not TCP_CA_Open"), Ok(()));
        assert_eq!(run("cwnd = 9; cwnd += 1\nassert tcpi_snd_cwnd == cwnd, (tcpi_snd_cwnd, cwnd)"), Ok(()));
        assert_eq!(
            run("x = 7 // 2 if True else 0\nassert x == 3 and 7 % 4 == 3 and 1 << 4 == 16 and 3 in (1, 3)"),
            Ok(())
        );
        assert_eq!(run("assert abs(-3) == 3 and max(1, 2) == 2; \\\nassert 1.5 > 1"), Ok(()));
        let failed = run("assert tcpi_snd_cwnd == 11, 'cwnd=%d' % tcpi_snd_cwnd").expect_err("10 is not 11");
        assert!(failed.contains("tcpi_snd_cwnd == 11") && failed.contains("cwnd=10"), "{failed}");
    }

    #[test]
    fn what_is_not_known_is_an_error_with_its_line() {
        assert_eq!(parse("\n\nassert 1 ==", 5).expect_err("no operand").line, 7);
        assert_eq!(parse("\nfor x in y: pass", 1).expect_err("no such statement").line, 2);
        assert!(run("assert nobody == 1").expect_err("no such name").contains("nobody"));
    }
}
