//! Whether locks that nest in one function are taken with `lock_after`, so that the compiler checks their order.
//!
//! A search line by line within each function: a guard that a `let` keeps, up to the end of its block or its `drop`,
//! and a plain `lock()` in between. It does not see a guard that only lives to the end of a statement, one that a
//! function returns, nor a lock that is taken in a called function. Debug builds check those when they run.

use super::{mentions, shipped};

/// The ways to wait for a lock, and whether the compiler or a number decides about their order.
const WAITS: &[&str] = &[".lock()", ".lock_after(", ".lock_nested("];

/// A guard that a `let` keeps.
struct KeptGuard<'a> {
    name: &'a str,
    /// Of the block that it lives in.
    depth: usize,
}

/// The lines with a plain `lock()` while a guard is kept.
pub fn nested_locks(path: &str, text: &str) -> Vec<String> {
    let (mut broken, mut kept, mut depth) = (Vec::new(), Vec::<KeptGuard<'_>>::new(), 0_usize);
    for (number, line) in shipped(text).lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        kept.retain(|guard| !dropped(code, guard.name));
        if code.contains(".lock()")
            && let Some(KeptGuard { name, .. }) = kept.last()
        {
            let line = number + 1;
            broken.push(format!(
                "{path}:{line}: a plain lock() while the guard `{name}` is held; take it with lock_after(&{name}), or \
                 drop the guard first"
            ));
        }
        for c in code.chars() {
            match c {
                '{' => depth += 1,
                '}' => {
                    depth = depth.saturating_sub(1);
                    kept.retain(|guard| guard.depth <= depth);
                }
                _ => {}
            }
        }
        kept.extend(keeps(code).map(|name| KeptGuard { name, depth }));
    }
    broken
}

/// Whether the line drops the guard of this name.
fn dropped(code: &str, name: &str) -> bool {
    code.split_once("drop(").is_some_and(|(_, rest)| mentions(rest, name))
}

/// The name of the guard that the line keeps: `let name = place.lock();`.
fn keeps(code: &str) -> Option<&str> {
    let (name, value) = code.trim().strip_prefix("let ")?.split_once(" = ")?;
    let name = name.strip_prefix("mut ").unwrap_or(name);
    let call = WAITS.iter().filter_map(|wait| value.rfind(wait)).max()?;
    // The call is the rest of the line: more text after a guard in the same expression uses and drops the guard.
    let arguments = value[call..].split_once('(')?.1;
    let closed = arguments.strip_suffix(';')?.strip_suffix(')')?;
    (name.chars().all(|c| c.is_alphanumeric() || c == '_') && balanced(closed)).then_some(name)
}

/// Whether no bracket of the text is closed before it is opened, so that the text is inside one pair.
fn balanced(text: &str) -> bool {
    let mut open = 0_i32;
    text.chars().all(|c| {
        open += i32::from(c == '(') - i32::from(c == ')');
        open >= 0
    })
}

#[cfg(test)]
mod tests {
    use super::nested_locks;

    fn found(body: &str) -> usize {
        nested_locks("f", &format!("fn f(&self) {{\n{body}\n}}\n")).len()
    }

    #[test]
    fn a_plain_lock_under_a_guard_is_found() {
        for outer in ["self.table.lock()", "self.table.lock_after(&other)", "self.parts[part].lock_nested(part as u32)"]
        {
            assert_eq!(
                found(&format!("    let table = {outer};\n    let mut timers = self.timers.lock();")),
                1,
                "{outer}"
            );
            assert_eq!(
                found(&format!(
                    "    let mut table = {outer};\n    if ready {{\n        self.timers.lock().arm();\n    }}"
                )),
                1
            );
        }
    }

    #[test]
    fn a_lock_that_the_compiler_orders_or_that_stands_alone_is_not() {
        for body in [
            "    let table = self.table.lock();\n    let timers = self.timers.lock_after(&table);",
            "    let table = self.table.lock();\n    drop(table);\n    self.timers.lock().arm();",
            "    let table = self.table.lock();\n    let timers = self.timers.lock_after(&table);\n    drop((table, timers));\n    self.timers.lock().arm();",
            "    {\n        let table = self.table.lock();\n    }\n    self.timers.lock().arm();",
            "    let len = self.table.lock().len();\n    self.timers.lock().arm();",
            "    let taken = std::mem::take(&mut *self.table.lock());\n    self.timers.lock().arm();",
            "    let table = self.table.lock();\n    // not self.timers.lock()",
        ] {
            assert_eq!(found(body), 0, "{body}");
        }
        assert_eq!(
            nested_locks("f", "fn f() {\n    let a = self.a.lock();\n}\n\nfn g() {\n    let b = self.b.lock();\n}\n")
                .len(),
            0
        );
    }
}
