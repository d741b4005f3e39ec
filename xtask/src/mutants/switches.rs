//! Rewrites a source file so that one build contains many mutants.
//!
//! Each mutant gets a number, and code that asks `crate::__mutant(number)` whether it is the one that this process has:
//! `a < b` becomes `(if crate::__mutant(7) { a <= b } else { a < b })`, a body begins with `if crate::__mutant(8) {
//! return true; }`, and the arm of a match gets a guard. At most one mutant is on, so an alternative is text of the
//! original file. Constant code (the body of a `const fn`, the length of an array) cannot have a switch: such mutants
//! need a build of their own.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;

use proc_macro2::Span;
use serde::Deserialize;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A mutant as `cargo mutants --list --json` has it.
#[derive(Deserialize, Clone, Debug)]
pub struct Listed {
    /// `crates/tcp/src/state.rs:12:34: replace < with <= in process`.
    pub name: String,
    pub file: String,
    pub genre: String,
    pub replacement: String,
    pub span: Extent,
}

/// The text that a mutant replaces.
#[derive(Deserialize, Clone, Copy, Debug)]
pub struct Extent {
    start: Point,
    end: Point,
}

/// Both count from 1.
#[derive(Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Point {
    line: usize,
    column: usize,
}

/// A file with switches.
pub struct Rewritten {
    pub text: String,
    /// The numbers of the mutants in it, each with the extent of its own text.
    pub switched: Vec<(usize, Range<usize>)>,
    /// The changed extents, each with its mutants: a larger one follows those within it.
    pub changed: Vec<(Range<usize>, Vec<usize>)>,
}

/// The addition to the crate's root: the function that the switches call. `HEDDLE_MUTANT` is the number of the mutant
/// that is on. With `HEDDLE_REACHED`, none is on, and the numbers of those that are asked for are appended to that
/// file.
pub const ASKED: &str = r#"
#[doc(hidden)]
#[inline]
pub fn __mutant(number: usize) -> bool {
    use std::io::Write as _;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
    const UNKNOWN: usize = usize::MAX;
    const RECORDED: usize = usize::MAX - 1;
    static ACTIVE: AtomicUsize = AtomicUsize::new(UNKNOWN);
    #[cold]
    fn decide() -> usize {
        let number = std::env::var("HEDDLE_MUTANT").ok().and_then(|number| number.parse().ok()).unwrap_or(0);
        let active = if std::env::var_os("HEDDLE_REACHED").is_some() { RECORDED } else { number };
        ACTIVE.store(active, Relaxed);
        active
    }
    #[cold]
    fn record(number: usize) {
        static SEEN: [AtomicBool; 8192] = [const { AtomicBool::new(false) }; 8192];
        static FILE: OnceLock<Option<std::fs::File>> = OnceLock::new();
        if SEEN[number].swap(true, Relaxed) {
            return;
        }
        let open = || {
            let path = std::env::var_os("HEDDLE_REACHED")?;
            std::fs::OpenOptions::new().create(true).append(true).open(path).ok()
        };
        if let Some(mut file) = FILE.get_or_init(open).as_ref() {
            let _ = file.write_all(format!("{number}\n").as_bytes());
        }
    }
    let active = match ACTIVE.load(Relaxed) {
        UNKNOWN => decide(),
        active => active,
    };
    if active == RECORDED {
        record(number);
    }
    active == number
}
"#;

/// Puts these mutants, each with its number, into the file with the text `source`.
///
/// # Errors
/// The file is not Rust.
pub fn rewrite(source: &str, mutants: &[(usize, &Listed)]) -> Result<Rewritten, String> {
    let file = syn::parse_file(source).map_err(|error| error.to_string())?;
    let mut search = Search { source, places: BTreeMap::new(), edits: Vec::new(), lines: starts_of_lines(source) };
    for (number, mutant) in mutants {
        let place = (mutant.genre.as_str(), mutant.span.start);
        search.places.entry(place).or_default().push((*number, *mutant));
    }
    search.visit_file(&file);
    let mut edits = search.edits;
    edits.sort_by_key(|edit| (edit.range.start, !edit.range.is_empty(), Reverse(edit.range.end)));
    let mut rewritten = Rewritten { text: String::new(), switched: Vec::new(), changed: Vec::new() };
    write(source, 0..source.len(), &edits, &mut rewritten);
    Ok(rewritten)
}

fn starts_of_lines(source: &str) -> Vec<usize> {
    [0].into_iter().chain(source.match_indices('\n').map(|(at, _)| at + 1)).collect()
}

/// Text before and after a part of the source. Edits within that part are made, too.
struct Edit {
    range: Range<usize>,
    before: Vec<(Option<usize>, String)>,
    after: &'static str,
}

/// Writes a part of the source with the edits that are in it, which are sorted: an edit before those within it.
fn write(source: &str, range: Range<usize>, edits: &[Edit], to: &mut Rewritten) {
    let mut at = range.start;
    let mut edits = edits;
    while let Some((edit, rest)) = edits.split_first() {
        let within = rest.iter().take_while(|other| other.range.end <= edit.range.end).count();
        let (within, rest) = rest.split_at(within);
        to.text += &source[at..edit.range.start];
        let start = to.text.len();
        let mut numbers = Vec::new();
        for (number, text) in &edit.before {
            let start = to.text.len();
            to.text += text;
            if let Some(number) = number {
                to.switched.push((*number, start..to.text.len()));
                numbers.push(*number);
            }
        }
        write(source, edit.range.clone(), within, to);
        to.text += edit.after;
        to.changed.push((start..to.text.len(), numbers));
        at = edit.range.end;
        edits = rest;
    }
    to.text += &source[at..range.end];
}

/// Looks for the expressions, bodies and arms of mutants.
struct Search<'a> {
    source: &'a str,
    places: BTreeMap<(&'a str, Point), Vec<(usize, &'a Listed)>>,
    edits: Vec<Edit>,
    lines: Vec<usize>,
}

impl<'a> Search<'a> {
    fn at(&self, genre: &'static str, span: Span) -> Vec<(usize, &'a Listed)> {
        let start = span.start();
        let point = Point { line: start.line, column: start.column + 1 };
        self.places.get(&(genre, point)).cloned().unwrap_or_default()
    }

    fn offset(&self, point: Point) -> usize {
        let line = self.lines[point.line - 1];
        let text = &self.source[line..];
        line + text.char_indices().nth(point.column - 1).map_or(text.len(), |(at, _)| at)
    }

    /// An expression, or for each mutant the same text with the mutant's change.
    fn choose(&mut self, range: Range<usize>, mutants: &[(usize, &Listed)]) {
        if mutants.is_empty() {
            return;
        }
        let mut before = vec![(None, "(".to_owned())];
        for (number, mutant) in mutants {
            let (start, end) = (self.offset(mutant.span.start), self.offset(mutant.span.end));
            let (head, tail) = (&self.source[range.start..start], &self.source[end..range.end]);
            let replacement = &mutant.replacement;
            let mut text = String::new();
            let _ = write!(text, "if crate::__mutant({number}) {{ {head}{replacement}{tail} }} else ");
            before.push((Some(*number), text));
        }
        before.push((None, "{ ".to_owned()));
        self.edits.push(Edit { range, before, after: " })" });
    }

    fn body(&mut self, block: &syn::Block) {
        let [Some(first), Some(last)] = [block.stmts.first(), block.stmts.last()] else { return };
        let mutants = self.at("FnValue", first.span());
        // The whole body: the compiler may warn about the code after the early return.
        let range = first.span().byte_range().start..last.span().byte_range().end;
        let line = |(number, mutant): &(usize, &Listed)| {
            (Some(*number), format!("if crate::__mutant({number}) {{ return {}; }} ", mutant.replacement))
        };
        let before: Vec<_> = mutants.iter().map(line).collect();
        if !before.is_empty() {
            self.edits.push(Edit { range, before, after: "" });
        }
    }

    fn deleted_arm(&mut self, arm: &syn::Arm) {
        for (number, _) in self.at("MatchArm", arm.span()) {
            let asks = format!("!crate::__mutant({number})");
            let edit = match &arm.guard {
                Some((_, guard)) => {
                    let before = vec![(Some(number), format!("{asks} && ("))];
                    Edit { range: guard.span().byte_range(), before, after: ")" }
                }
                None => {
                    let at = arm.pat.span().byte_range().end;
                    Edit { range: at..at, before: vec![(Some(number), format!(" if {asks}"))], after: "" }
                }
            };
            self.edits.push(edit);
        }
    }
}

/// Whether the expression binds names, as only conditions may.
fn binds(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => binds(&binary.left) || binds(&binary.right),
        _ => false,
    }
}

impl<'a> Visit<'a> for Search<'_> {
    fn visit_expr_binary(&mut self, node: &'a syn::ExprBinary) {
        if !binds(&node.left) && !binds(&node.right) {
            let mutants = self.at("BinaryOperator", node.op.span());
            self.choose(node.span().byte_range(), &mutants);
        }
        visit::visit_expr_binary(self, node);
    }

    fn visit_expr_unary(&mut self, node: &'a syn::ExprUnary) {
        let mutants = self.at("UnaryOperator", node.op.span());
        self.choose(node.span().byte_range(), &mutants);
        visit::visit_expr_unary(self, node);
    }

    fn visit_arm(&mut self, node: &'a syn::Arm) {
        if !node.guard.as_ref().is_some_and(|(_, guard)| binds(guard)) {
            self.deleted_arm(node);
            if let Some((_, guard)) = &node.guard {
                let mutants = self.at("MatchArmGuard", guard.span());
                self.choose(guard.span().byte_range(), &mutants);
            }
        }
        visit::visit_arm(self, node);
    }

    fn visit_item_fn(&mut self, node: &'a syn::ItemFn) {
        if node.sig.constness.is_none() {
            self.body(&node.block);
            visit::visit_item_fn(self, node);
        }
    }

    fn visit_impl_item_fn(&mut self, node: &'a syn::ImplItemFn) {
        if node.sig.constness.is_none() {
            self.body(&node.block);
            visit::visit_impl_item_fn(self, node);
        }
    }

    fn visit_trait_item_fn(&mut self, node: &'a syn::TraitItemFn) {
        if let Some(block) = &node.default {
            self.body(block);
        }
        visit::visit_trait_item_fn(self, node);
    }

    // Constant code has no switch.
    fn visit_item_const(&mut self, _: &'a syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'a syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'a syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'a syn::TraitItemConst) {}
    fn visit_type(&mut self, _: &'a syn::Type) {}
    fn visit_expr_const(&mut self, _: &'a syn::ExprConst) {}
    fn visit_generic_argument(&mut self, _: &'a syn::GenericArgument) {}
    fn visit_variant(&mut self, _: &'a syn::Variant) {}
    fn visit_pat(&mut self, _: &'a syn::Pat) {}

    fn visit_expr_repeat(&mut self, node: &'a syn::ExprRepeat) {
        self.visit_expr(&node.expr);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(genre: &str, replacement: &str, [start, end]: [(usize, usize); 2]) -> Listed {
        let point = |(line, column)| Point { line, column };
        let span = Extent { start: point(start), end: point(end) };
        let [name, file] = ["a.rs:1:1: replace", "a.rs"].map(str::to_owned);
        Listed { name, file, genre: genre.to_owned(), replacement: replacement.to_owned(), span }
    }

    fn text(source: &str, mutants: &[Listed]) -> Rewritten {
        let numbered: Vec<_> = (1..).zip(mutants).collect();
        rewrite(source, &numbered).expect("Rust")
    }

    #[test]
    fn an_operator_becomes_a_choice_and_its_operands_keep_theirs() {
        let source = "fn f(a: u8, b: u8) -> bool { a + b < 3 }";
        let inner = listed("BinaryOperator", "-", [(1, 32), (1, 33)]);
        let outer = listed("BinaryOperator", "<=", [(1, 36), (1, 37)]);
        let found = text(source, &[inner, outer]);
        assert_eq!(
            found.text,
            "fn f(a: u8, b: u8) -> bool { (if crate::__mutant(2) { a + b <= 3 } else { \
             (if crate::__mutant(1) { a - b } else { a + b }) < 3 }) }"
        );
        let of = |wanted: usize| {
            let (_, range) = found.switched.iter().find(|(number, _)| *number == wanted).expect("it is there");
            &found.text[range.clone()]
        };
        assert_eq!(of(1), "if crate::__mutant(1) { a - b } else ");
        assert_eq!(found.changed.iter().map(|(_, numbers)| numbers.clone()).collect::<Vec<_>>(), [[1], [2]]);
    }

    #[test]
    fn a_body_returns_early_and_its_first_expression_keeps_its_choice() {
        let source = "fn f(x: bool) -> bool { !x }";
        let body = listed("FnValue", "true", [(1, 25), (1, 27)]);
        let sign = listed("UnaryOperator", "", [(1, 25), (1, 26)]);
        assert_eq!(
            text(source, &[body, sign]).text,
            "fn f(x: bool) -> bool { if crate::__mutant(1) { return true; } \
             (if crate::__mutant(2) { x } else { !x }) }"
        );
    }

    #[test]
    fn an_arm_is_deleted_by_a_guard() {
        let source = "fn f(x: u8) -> u8 { match x { 1 => 2, y if y > 2 => 3, _ => 4 } }";
        let plain = listed("MatchArm", "", [(1, 31), (1, 38)]);
        let guarded = listed("MatchArm", "", [(1, 39), (1, 54)]);
        let guard = listed("MatchArmGuard", "true", [(1, 44), (1, 49)]);
        assert_eq!(
            text(source, &[plain, guarded, guard]).text,
            "fn f(x: u8) -> u8 { match x { 1 if !crate::__mutant(1) => 2, \
             y if !crate::__mutant(2) && ((if crate::__mutant(3) { true } else { y > 2 })) => 3, _ => 4 } }"
        );
    }

    #[test]
    fn what_has_to_be_constant_and_what_binds_has_no_switch() {
        for source in [
            "const N: u8 = 1 + 2; ",
            "const fn f() -> u8 { 1 + 2 }",
            "fn f(a: [u8; 1 + 2]) { g(a) }",
            "fn f() { g([0; 1 + 2]) }",
            "fn f(a: Option<u8>) { if let Some(1) = a && g() { } }",
        ] {
            let column = source.find(['+', '&']).expect("an operator") + 1;
            let operator = listed("BinaryOperator", "-", [(1, column), (1, column + 1)]);
            let found = text(source, &[operator]);
            assert_eq!((found.text.as_str(), found.switched.len()), (source, 0));
        }
    }
}
