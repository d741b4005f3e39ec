//! The expansion: the unchanged function, and a module of the same name with one test per architecture. (A function and
//! a module may share a name, because they are in different namespaces.)

use proc_macro::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};

use crate::architectures::{also_in, architectures, identifier, program};
use crate::function::{Error, Function};

pub fn expand(arguments: TokenStream, item: TokenStream) -> Result<TokenStream, Error> {
    let chosen = choose(arguments)?;
    let function = Function::parse(item)?;
    let mut tests: TokenStream = quote("#[allow(unused_imports)] use super::*;");
    for arch in architectures().filter(|arch| chosen.contains(&identifier(arch))) {
        tests.extend(test(&function, &identifier(arch), arch, ""));
    }
    for arch in also_in(&program()).filter(|arch| chosen.contains(&identifier(arch))) {
        tests.extend(test(&function, &identifier(arch), arch, "crate::register_architectures();"));
    }
    let mut output = function.item;
    output.extend(quote("#[cfg(test)] mod"));
    output.extend([TokenTree::Ident(function.name), TokenTree::Group(Group::new(Delimiter::Brace, tests))]);
    Ok(output)
}

/// `#[test] pub(super) fn identifier() -> Type { before; super::name("arch".parse().expect("..")) }`
fn test(function: &Function, identifier: &str, arch: &str, before: &str) -> TokenStream {
    let mut body = quote(before);
    body.extend(quote("super::"));
    // The function's own span: an error in its signature is shown there.
    body.extend([TokenTree::Ident(function.name.clone())]);
    let refused = format!("the plan {arch:?} of `#[every_arch]` is one that stack::arch::select knows");
    body.extend(quote(&format!("({arch:?}.parse().expect({refused:?}))")));
    let mut test = quote("#[test]");
    test.extend(function.test_attributes.clone());
    test.extend(quote(&format!("pub(super) fn {identifier}()")));
    test.extend(function.return_type.clone());
    test.extend([TokenTree::Group(Group::new(Delimiter::Brace, body))]);
    test
}

fn quote(source: &str) -> TokenStream {
    source.parse().expect("the templates of this file are valid Rust")
}

/// Identifiers of the architectures selected by the attribute's arguments.
fn choose(arguments: TokenStream) -> Result<Vec<String>, Error> {
    let all = || architectures().map(identifier).chain(also_in(&program()).map(identifier).collect::<Vec<_>>());
    let arguments: Vec<TokenTree> = arguments.into_iter().collect();
    match &arguments[..] {
        [] => Ok(all().collect()),
        [TokenTree::Ident(verb), TokenTree::Group(list)] if list.delimiter() == Delimiter::Parenthesis => {
            let named = identifiers(list)?;
            let wanted = match verb.to_string().as_str() {
                "only" => true,
                "except" => false,
                _ => return Err(usage(verb.span())),
            };
            Ok(all().filter(|identifier| named.contains(identifier) == wanted).collect())
        }
        [first, ..] => Err(usage(first.span())),
    }
}

fn usage(at: Span) -> Error {
    Error::new(at, "`#[every_arch]` takes nothing, `only(plan, ..)` or `except(plan, ..)`")
}

fn identifiers(list: &Group) -> Result<Vec<String>, Error> {
    let also: Vec<&str> = also_in(&program()).collect();
    let all = || architectures().chain(also.iter().copied());
    let known = |name: &Ident| all().any(|arch| name.to_string() == identifier(arch));
    let mut names = Vec::new();
    for token in list.stream() {
        match token {
            TokenTree::Ident(name) if known(&name) => names.push(name.to_string()),
            TokenTree::Punct(comma) if comma.as_char() == ',' => {}
            other => {
                let known: Vec<_> = all().map(identifier).collect();
                return Err(Error::new(other.span(), format!("no plan {other}; there are {}", known.join(", "))));
            }
        }
    }
    Ok(names)
}
