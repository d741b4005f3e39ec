//! The kernel's functions by address, from `/proc/kallsyms`.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::sync::OnceLock;

use super::functions::FunctionRole;

const PATH: &str = "/proc/kallsyms";

/// Where functions begin, in the order of addresses; each ends where the next one begins.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct KernelSymbols {
    functions: Vec<(u64, FunctionRole)>,
}

impl KernelSymbols {
    /// Those of the running kernel, read once.
    ///
    /// # Errors
    /// A sentence that says which setting hides them.
    pub(super) fn of_this_kernel() -> Result<&'static KernelSymbols, String> {
        static SYMBOLS: OnceLock<Result<KernelSymbols, String>> = OnceLock::new();
        let read = || {
            check()?;
            let text = fs::read_to_string(PATH).map_err(|error| format!("{PATH} cannot be read: {error}"))?;
            Ok(KernelSymbols::parse(&text))
        };
        SYMBOLS.get_or_init(read).as_ref().map_err(String::clone)
    }

    /// Lines of an address, a letter for the section, and a name; data is left out. Of several names of one address the
    /// first that says anything counts.
    pub(super) fn parse(text: &str) -> KernelSymbols {
        let mut functions: Vec<(u64, FunctionRole)> = text.lines().filter_map(function).collect();
        functions.sort_by_key(|(start, role)| (*start, *role == FunctionRole::Nothing));
        functions.dedup_by_key(|(start, _)| *start);
        KernelSymbols { functions }
    }

    /// The role of the function that has this address; of one below all functions, as of user code, nothing.
    pub(super) fn role(&self, address: u64) -> FunctionRole {
        let next = self.functions.partition_point(|(start, _)| *start <= address);
        next.checked_sub(1).map_or(FunctionRole::Nothing, |index| self.functions[index].1)
    }
}

fn function(line: &str) -> Option<(u64, FunctionRole)> {
    let mut words = line.split_ascii_whitespace();
    let (address, section, name) = (words.next()?, words.next()?, words.next()?);
    let is_code = matches!(section, "t" | "T" | "w" | "W");
    Some((u64::from_str_radix(address, 16).ok()?, FunctionRole::of(name))).filter(|_| is_code)
}

/// Whether addresses can be read, from the first lines.
///
/// # Errors
/// As [`KernelSymbols::of_this_kernel`].
pub(super) fn check() -> Result<(), String> {
    let file = File::open(PATH).map_err(|error| {
        format!(
            "{PATH} cannot be read ({error}): the kernel's functions are known only to a kernel with CONFIG_KALLSYMS"
        )
    })?;
    let mut first = BufReader::with_capacity(4096, file).lines().map_while(Result::ok).take(20);
    let hidden = || {
        let restrict = fs::read_to_string("/proc/sys/kernel/kptr_restrict").unwrap_or_default();
        format!(
            "the addresses in {PATH} are hidden, as kernel.kptr_restrict is {}: set it to 0, or to 1 and give the program CAP_SYSLOG",
            restrict.trim()
        )
    };
    if first.any(|line| function(&line).is_some_and(|(address, _)| address > 0)) { Ok(()) } else { Err(hidden()) }
}

#[cfg(test)]
mod tests {
    use super::super::functions::KernelPart;
    use super::*;

    const TEXT: &str = "\
ffffffff81000000 T _text
ffffffff81000100 t finish_task_switch.isra.0
ffffffff81000180 T memcpy
ffffffff81000180 W __schedule
ffffffff810001a0 d schedule
ffffffff81000200 t tcp_ack\t[tcp_module]
ffffffff81000140 t futex_q_lock
not a line
";

    #[test]
    fn an_address_is_in_the_function_that_begins_before_it() {
        let symbols = KernelSymbols::parse(TEXT);
        let roles =
            [0x81000000_u64, 0x810000ff, 0x81000100, 0x8100013f, 0x81000140, 0x81000180, 0x810001ff, 0x81000200]
                .map(|address| symbols.role(0xffff_ffff_0000_0000 | address));
        let (scheduler, futex) = (FunctionRole::Is(KernelPart::Scheduler), FunctionRole::Is(KernelPart::FutexQueue));
        let nothing = FunctionRole::Nothing;
        assert_eq!(roles, [nothing, nothing, scheduler, scheduler, futex, scheduler, scheduler, nothing]);
        assert_eq!(symbols.role(0x7f00_0000_1234), nothing, "user code");
        assert_eq!(KernelSymbols::parse("").role(5), nothing);
    }
}
