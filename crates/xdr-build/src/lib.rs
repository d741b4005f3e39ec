//! The compiler of XDR specifications (RFC 4506): a `.x` file to Rust types that implement `xdr::Xdr`.
//!
//! | file | owns |
//! |---|---|
//! | `lex.rs` | tokens and their positions |
//! | `tree.rs` | a specification as a value |
//! | `parse.rs` | the grammar of RFC 4506 section 6.3 |
//! | `resolve.rs` | rules that the grammar does not state: each name is declared once, and so on |
//! | `names.rs` | names of a specification to names of Rust |
//! | `generate.rs` | Rust text |
//!
//! It is called from a build script:
//!
//! ```no_run
//! // build.rs
//! xdr_build::compile("src/messages.x");
//! ```
//!
//! ```text
//! // In the library; the included file refers to the crate `xdr`.
//! mod messages {
//!     include!(concat!(env!("OUT_DIR"), "/messages.rs"));
//! }
//! ```
//!
//! # What is generated
//!
//! A structure becomes a `struct`, an enumeration an `enum` of its members, a union an `enum` with a variant for each
//! case that holds the case's data, a `typedef` a type alias, a constant a `const`. Types get names in `UpperCamelCase`,
//! fields in `snake_case`. A type declared inside a field is named for both: field `body` of `call_message` has the
//! type `CallMessageBody`.
//!
//! The variants of a union are named for their enumeration's members, `True` and `False`, or `Case5` and `CaseMinus5`.
//! The `default` of an integer union is `Default`, with the number. The default of an enumeration is written out, one
//! variant for each member that has no case. So two variants never stand for the same number, but for a `Default` with
//! the number of another case: do not make one.
//!
//! Lines that begin with `%`, which some compilers pass through, are an error, and so are the `program` definitions of
//! RFC 5531: they are not part of XDR.

#![forbid(unsafe_code)]

mod generate;
mod lex;
mod names;
mod parse;
mod resolve;
mod tree;

use std::fmt;
use std::path::{Path, PathBuf};

/// Why a specification was not compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecificationError {
    /// The line, counted from 1.
    pub line: u32,
    /// The character in the line, counted from 1.
    pub column: u32,
    /// The error, and the expected text.
    pub message: String,
}

impl fmt::Display for SpecificationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SpecificationError { line, column, message } = self;
        write!(f, "{line}:{column}: {message}")
    }
}

impl std::error::Error for SpecificationError {}

/// Rust text with the types of `specification`.
///
/// # Errors
///
/// At the first mistake in the specification.
pub fn generate(specification: &str) -> Result<String, SpecificationError> {
    let tokens = lex::tokens(specification)?;
    let definitions = parse::specification(tokens)?;
    let names = resolve::resolve(&definitions)?;
    Ok(generate::rust(&definitions, &names))
}

/// Compiles the specification at `path` to a file of the same name with the ending `rs` in `OUT_DIR`, and asks cargo to
/// do so again when the specification changes. For build scripts.
///
/// # Panics
///
/// If the specification cannot be read or has a mistake, or the output cannot be written: this ends the build, with
/// the reason.
pub fn compile(path: impl AsRef<Path>) {
    let path = path.as_ref();
    println!("cargo::rerun-if-changed={}", path.display());
    let specification =
        std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{} cannot be read: {error}", path.display()));
    let rust = generate(&specification).unwrap_or_else(|error| panic!("{}:{error}", path.display()));
    let directory = std::env::var_os("OUT_DIR").expect("OUT_DIR is set by cargo for a build script, and only there");
    let name = path.with_extension("rs");
    let to = PathBuf::from(directory).join(name.file_name().expect("a path to a file ends in its name"));
    std::fs::write(&to, rust).unwrap_or_else(|error| panic!("{} cannot be written: {error}", to.display()));
}
