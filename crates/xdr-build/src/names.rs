//! Names of a specification to names of Rust.

/// `call_message` and `CALL_MESSAGE` to `CallMessage`; `callMessage` keeps its capitals.
pub(crate) fn upper_camel(name: &str) -> String {
    name.split('_').filter(|part| !part.is_empty()).map(capitalised).collect()
}

fn capitalised(part: &str) -> String {
    let shouted = part.len() > 1 && !part.chars().any(|c| c.is_ascii_lowercase());
    let (first, rest) = part.split_at(1);
    let rest = if shouted { rest.to_ascii_lowercase() } else { rest.to_owned() };
    first.to_ascii_uppercase() + &rest
}

/// `callMessage` and `CallMessage` to `call_message`; a keyword of Rust becomes a raw identifier.
pub(crate) fn snake(name: &str) -> String {
    let mut snake = String::new();
    let mut previous = '_';
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && (previous.is_ascii_lowercase() || previous.is_ascii_digit()) {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
        previous = letter;
    }
    match snake.as_str() {
        "crate" | "self" | "super" => snake + "_",
        word if RESERVED.contains(&word) => format!("r#{word}"),
        _ => snake,
    }
}

/// The words of Rust that name nothing but as raw identifiers, those that XDR has as well left out.
const RESERVED: [&str; 44] = [
    "abstract", "as", "async", "await", "become", "box", "break", "continue", "do", "dyn", "else", "extern", "false",
    "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod", "move", "mut", "override",
    "priv", "pub", "ref", "return", "static", "trait", "true", "try", "type", "unsafe", "unsized", "use", "virtual",
    "where", "while", "yield",
];

/// The variant of a union for the number `label`.
pub(crate) fn numbered(label: i128) -> String {
    if label < 0 { format!("CaseMinus{}", -label) } else { format!("Case{label}") }
}
