//! How long the file of an architecture may be. It contains exclusion and hand-off alone, so it is short: what happens to a
//! connection, and where connections are kept, is written once, elsewhere.
//!
//! Lines of code are counted: no comment, no blank line, no declaration (`DECLARATION` is data), no tests at the end.

/// For an architecture of cells: one type that implements `Exclusion`, or `Domain` below it, or a choice of another one's
/// parameters.
const CELLS: usize = 80;

/// For one of connections, which is `MsgP` or is in front of it.
const CONNECTIONS: usize = 250;

/// The complaint about an architecture's file that is too long.
pub(super) fn too_long(path: &str, text: &str) -> Option<String> {
    let (_, declaration) = text.split_once("\npub const DECLARATION")?;
    let declared = declaration.split_once("\n};\n").map_or(declaration, |(declared, _)| declared);
    let lines = code(super::shipped(text)).saturating_sub(1 + code(declared));
    let most = if text.contains("MsgP") { CONNECTIONS } else { CELLS };
    let what = "lines of code besides the declaration";
    (lines > most).then(|| format!("{path}: {lines} {what}, where {most} are the most"))
}

fn code(text: &str) -> usize {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(lines: usize, makes: &str) -> String {
        let work = "    work();\n\n    // Why.\n".repeat(lines - 3);
        format!(
            "//! Head.\n\npub const DECLARATION: D = D {{\n    name: \"n\",\n}};\n\nfn new() {{\n    {makes}\n{work}}}\n\
             #[cfg(test)]\nmod tests {{\n    fn test() {{}}\n}}\n"
        )
    }

    #[test]
    fn lines_of_code_besides_the_declaration_are_counted() {
        assert_eq!(too_long("arch/a.rs", &file(80, "Cells::new();")), None);
        let complaint = too_long("arch/a.rs", &file(81, "Cells::new();"));
        assert_eq!(
            complaint.as_deref(),
            Some("arch/a.rs: 81 lines of code besides the declaration, where 80 are the most")
        );
        assert_eq!(too_long("arch/a.rs", &file(250, "MsgP::of();")), None);
        assert!(too_long("arch/a.rs", &file(251, "MsgP::of();")).is_some());
        assert_eq!(too_long("arch/shared.rs", "fn not_an_architecture() {}\n"), None);
    }
}
