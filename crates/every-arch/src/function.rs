//! Reads the parts of a test function that the expansion needs. Everything else is passed on unchanged.

use proc_macro::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};

/// An error message, and its span.
pub struct Error {
    pub at: Span,
    pub message: String,
}

impl Error {
    pub fn new(at: Span, message: impl Into<String>) -> Error {
        Error { at, message: message.into() }
    }

    /// `compile_error! { "message" }` at the span of the error.
    pub fn into_compile_error(self) -> TokenStream {
        let tokens: TokenStream =
            format!("::core::compile_error! {{ {:?} }}", self.message).parse().expect("a macro call is valid Rust");
        tokens.into_iter().map(|token| at(token, self.at)).collect()
    }
}

fn at(mut token: TokenTree, span: Span) -> TokenTree {
    token.set_span(span);
    token
}

/// The parts of a test function.
pub struct Function {
    /// Attributes that belong to each test: `should_panic`, `ignore`, and `cfg` (which stays on the function too).
    pub test_attributes: TokenStream,
    /// The function, without the attributes that only a test may have.
    pub item: TokenStream,
    /// Its name.
    pub name: Ident,
    /// The arrow and the type, or nothing.
    pub return_type: TokenStream,
}

impl Function {
    pub fn parse(item: TokenStream) -> Result<Function, Error> {
        let mut tokens = item.into_iter().peekable();
        let mut test_attributes = TokenStream::new();
        let mut kept = TokenStream::new();
        while let Some(hash) = tokens.next_if(|token| matches!(token, TokenTree::Punct(p) if p.as_char() == '#')) {
            let attribute = tokens.next().ok_or_else(|| Error::new(hash.span(), "an attribute is cut short"))?;
            let name = attribute_name(&attribute);
            let for_test = matches!(name.as_str(), "should_panic" | "ignore" | "cfg");
            let for_function = !matches!(name.as_str(), "should_panic" | "ignore");
            if for_test {
                test_attributes.extend([hash.clone(), attribute.clone()]);
            }
            if for_function {
                kept.extend([hash, attribute]);
            }
        }
        let rest: Vec<TokenTree> = tokens.collect();
        let (position, name) = name_of(&rest)?;
        let (arguments, return_type) = signature_of(&rest[position + 1..], &name)?;
        check_arguments(&arguments, &name)?;
        kept.extend(rest);
        Ok(Function { test_attributes, item: kept, name, return_type })
    }
}

fn attribute_name(attribute: &TokenTree) -> String {
    let TokenTree::Group(group) = attribute else { return String::new() };
    group.stream().into_iter().next().map(|token| token.to_string()).unwrap_or_default()
}

/// The identifier after `fn` and its position; only a visibility may come before them.
fn name_of(tokens: &[TokenTree]) -> Result<(usize, Ident), Error> {
    for (i, pair) in tokens.windows(2).enumerate() {
        match pair {
            [TokenTree::Ident(word), TokenTree::Ident(name)] if word.to_string() == "fn" => {
                return Ok((i + 1, name.clone()));
            }
            [TokenTree::Ident(word), _] if word.to_string() == "pub" => {}
            [TokenTree::Group(group), _] if group.delimiter() == Delimiter::Parenthesis => {}
            [other, _] => return Err(Error::new(other.span(), "`#[every_arch]` wants a plain function")),
            _ => {}
        }
    }
    Err(Error::new(Span::call_site(), "`#[every_arch]` wants a function"))
}

/// The argument list, the first token after the name, and the tokens between it and the body.
fn signature_of(behind_name: &[TokenTree], name: &Ident) -> Result<(Group, TokenStream), Error> {
    let mut after = behind_name.iter();
    let Some(TokenTree::Group(arguments)) = after.next() else {
        return Err(Error::new(name.span(), "`#[every_arch]` does not take generic functions"));
    };
    let is_body = |token: &&TokenTree| matches!(token, TokenTree::Group(g) if g.delimiter() == Delimiter::Brace);
    Ok((arguments.clone(), after.take_while(|token| !is_body(token)).cloned().collect()))
}

fn check_arguments(arguments: &Group, name: &Ident) -> Result<(), Error> {
    let mut tokens: Vec<TokenTree> = arguments.stream().into_iter().collect();
    let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(p) if p.as_char() == ',');
    if tokens.last().is_some_and(is_comma) {
        tokens.pop();
    }
    if tokens.is_empty() || tokens.iter().any(is_comma) {
        let message = format!("`{name}` must take one argument, the plan: `fn {name}(plan: stack::Plan)`");
        return Err(Error::new(arguments.span(), message));
    }
    Ok(())
}
