//! `#[every_arch]`: one test, run under every process architecture.
//!
//! The names of the plans are those that the architectures declare in `stack`, by way of `plans.txt`, which a test in `stack`
//! writes and checks. A procedural-macro crate can export nothing but macros, so the list is read through [`plans!`].
//!
//! Who calls this: tests, as a dev-dependency. What may never happen: a test that silently runs under fewer plans than
//! exist; leaving one out takes `except(..)` in the source.
#![forbid(unsafe_code)]

extern crate proc_macro;

mod expand;
mod function;
mod plans;

use proc_macro::TokenStream;

/// Makes a function of one plan into a module with one test per process architecture.
///
/// The function takes the plan by value, in any type that implements [`FromStr`](std::str::FromStr) (`stack::Plan`),
/// and returns nothing or what a test may return. The tests are called `function::plan`, with the plan's identifier
/// from [`plans!`]. `#[should_panic]` and `#[ignore]` apply to each of them.
///
/// `#[every_arch(only(giant, msgp_1))]` and `#[every_arch(except(up))]` choose plans by identifier; say in a comment
/// why.
///
/// ```
/// use every_arch::every_arch;
///
/// struct Plan(String);
/// # impl std::str::FromStr for Plan {
/// #     type Err = std::convert::Infallible;
/// #     fn from_str(name: &str) -> Result<Plan, Self::Err> { Ok(Plan(name.to_owned())) }
/// # }
///
/// #[every_arch]
/// fn echo_is_byte_exact(plan: Plan) {
///     assert!(!plan.0.is_empty());
/// }
/// ```
///
/// A function without the argument, or with more, is refused:
///
/// ```compile_fail
/// #[every_arch::every_arch]
/// fn no_plan() {}
/// ```
///
/// So is a plan that does not exist:
///
/// ```compile_fail
/// #[every_arch::every_arch(only(cray))]
/// fn test(plan: String) {}
/// ```
#[proc_macro_attribute]
pub fn every_arch(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(arguments, item).unwrap_or_else(|error| error.into_compile_error())
}

/// The plans that `#[every_arch]` runs, as a `&'static [(&'static str, &'static str)]` of identifier and plan.
///
/// ```
/// assert!(every_arch::plans!().contains(&("msgp_2_coupled", "msgp:2+coupled")));
/// ```
#[proc_macro]
pub fn plans(_: TokenStream) -> TokenStream {
    let entry = |plan| format!("({:?}, {plan:?}), ", plans::identifier(plan));
    let entries: String = plans::plans().map(entry).collect();
    let list = format!("{{ const PLANS: &[(&str, &str)] = &[{entries}]; PLANS }}");
    list.parse().expect("a list of string literals is valid Rust")
}
