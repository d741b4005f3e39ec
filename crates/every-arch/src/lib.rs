//! `#[every_arch]`: one test, run under every process architecture.
//!
//! The names of the architectures are those declared in `stack`, through `architectures.txt`, which a test in `stack`
//! writes and checks. A procedural-macro crate can export only macros, so the list is read through [`architectures!`].
//!
//! Used by tests, as a dev-dependency. What may never happen: a test that silently runs under fewer architectures than
//! exist; leaving one out requires `except(..)` in the source.
#![forbid(unsafe_code)]

extern crate proc_macro;

mod architectures;
mod expand;
mod function;

use proc_macro::TokenStream;

/// Makes a function of one architecture into a module with one test per process architecture.
///
/// The function takes the architecture by value, in any type that implements [`FromStr`](std::str::FromStr)
/// (`stack::Architecture`), and returns nothing or any type that a test may return. The tests are called
/// `function::arch`, with the architecture's identifier from [`architectures!`]. `#[should_panic]` and `#[ignore]`
/// apply to each of them.
///
/// `#[every_arch(only(giant, msgp_1))]` and `#[every_arch(except(up))]` choose architectures by identifier; state the
/// reason in a comment.
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
/// fn echo_is_byte_exact(architecture: Plan) {
///     assert!(!architecture.0.is_empty());
/// }
/// ```
///
/// An architecture that is in no list is covered in the test programs that `also.txt` names, which have a function
/// `register_architectures` at their root.
///
/// A function without the argument, or with more, is refused:
///
/// ```compile_fail
/// #[every_arch::every_arch]
/// fn no_plan() {}
/// ```
///
/// So is an architecture that does not exist:
///
/// ```compile_fail
/// #[every_arch::every_arch(only(cray))]
/// fn test(architecture: String) {}
/// ```
#[proc_macro_attribute]
pub fn every_arch(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(arguments, item).unwrap_or_else(|error| error.into_compile_error())
}

/// The architectures that `#[every_arch]` runs, as a `&'static [(&'static str, &'static str)]` of identifier and
/// architecture.
///
/// ```
/// assert!(every_arch::architectures!().contains(&("msgp_2_coupled", "msgp:2+coupled")));
/// ```
#[proc_macro]
pub fn architectures(_: TokenStream) -> TokenStream {
    let entry = |arch| format!("({:?}, {arch:?}), ", architectures::identifier(arch));
    let entries: String = architectures::architectures().map(entry).collect();
    let list = format!("{{ const ARCHITECTURES: &[(&str, &str)] = &[{entries}]; ARCHITECTURES }}");
    list.parse().expect("a list of string literals is valid Rust")
}
