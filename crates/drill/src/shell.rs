//! Shell lines of a script, parsed for their effects on the stack. They are never executed.
//!
//! A command that sets a kernel parameter sets a knob; one that prepares a Linux machine (queueing disciplines, caches)
//! is ignored; any other is an error that names the line.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use stack::{ParseRouteError, Route, RouteName};

use crate::error::ScriptError;

/// The effect of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// A kernel parameter by its path, and its value.
    Knob(String, String),
    /// Whether the link drops the frames of the stack.
    Swallow(bool),
    /// A file of zeros, with its length.
    File(String, usize),
    /// Clears the state kept about other hosts.
    Forget,
    /// A route, added or changed.
    Route(Route),
    /// A route, removed.
    Unroute(RouteName),
    /// The link's MTU in bytes.
    Mtu(u16),
}

/// The parameters under which public scripts are meant to run: those of `defaults.sh`, for a script without such a
/// file.
const DEFAULTS: [(&str, &str); 19] = [
    ("tcp_rmem", "4096 540000 15728640"),
    ("tcp_wmem", "4096 262144 4194304"),
    ("tcp_timestamps", "1"),
    ("tcp_syn_retries", "5"),
    ("tcp_synack_retries", "5"),
    ("tcp_frto", "2"),
    ("tcp_sack", "1"),
    ("tcp_dsack", "1"),
    ("tcp_reordering", "3"),
    ("tcp_congestion_control", "cubic"),
    ("tcp_slow_start_after_idle", "0"),
    ("tcp_early_retrans", "4"),
    ("tcp_recovery", "1"),
    ("tcp_ecn", "0"),
    ("tcp_pacing_ss_ratio", "200"),
    ("tcp_pacing_ca_ratio", "120"),
    ("tcp_fastopen", "0x403"),
    ("tcp_fastopen_key", "a1a1a1a1-b2b2b2b2-c3c3c3c3-d4d4d4d4"),
    ("tcp_syncookies", "1"),
];

/// Parameters without effect in Linux.
const DEAD: [&str; 3] = ["tcp_fack", "tcp_low_latency", "tcp_fastopen_cookies"];

/// Limit of nested files: more is a recursion.
const DEEPEST: u32 = 8;

/// Parses the lines of a backquoted block that begins at `line` of a script in `directory`.
pub(crate) fn read(shell: &str, line: u32, directory: Option<&Path>) -> Result<Vec<(u32, Effect)>, ScriptError> {
    let mut effects = Vec::new();
    for (line, words) in commands(shell, line)? {
        command(&words, line, Place { directory, depth: 0 }, &mut effects)?;
    }
    Ok(effects)
}

/// The place of a command.
#[derive(Clone, Copy)]
struct Place<'p> {
    /// The script's directory, the base of relative paths, also in the files that it runs.
    directory: Option<&'p Path>,
    /// Depth of nested files.
    depth: u32,
}

impl Place<'_> {
    /// Adds the effects of the shell script `program` at `line` of the packet script. False: there is no such file.
    fn run(self, program: &str, line: u32, effects: &mut Vec<(u32, Effect)>) -> Result<bool, ScriptError> {
        let Some(path) = self.directory.map(|directory| directory.join(program)) else { return Ok(false) };
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(ScriptError::new(line, format!("cannot read {program}: {error}"))),
        };
        if self.depth >= DEEPEST {
            return Err(ScriptError::new(line, format!("{program} runs itself")));
        }
        let inside =
            |error: ScriptError| ScriptError::new(line, format!("line {} of {program}: {}", error.line, error.message));
        let place = Place { depth: self.depth + 1, ..self };
        let mut found = Vec::new();
        for (line, words) in commands(&text, 1).map_err(inside)? {
            command(&words, line, place, &mut found).map_err(inside)?;
        }
        effects.extend(found.into_iter().map(|(_, effect)| (line, effect)));
        Ok(true)
    }
}

fn command(words: &[String], line: u32, place: Place<'_>, effects: &mut Vec<(u32, Effect)>) -> Result<(), ScriptError> {
    let Some((program, arguments)) = words.split_first() else { return Ok(()) };
    let name = program.rsplit('/').next().unwrap_or(program);
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    match name {
        _ if name.ends_with(".sh") && place.run(program, line, effects)? => {}
        "defaults.sh" => {
            effects.extend(DEFAULTS.iter().map(|(name, value)| (line, knob(name, value))));
        }
        "sysctl" | "set_sysctls.py" => {
            for argument in arguments.iter().filter(|argument| !argument.starts_with('-')) {
                let Some((name, value)) = argument.split_once('=') else {
                    return Err(ScriptError::new(line, format!("`{argument}` sets nothing: write it as name=value")));
                };
                set(name.trim(), value.trim(), line, effects);
            }
        }
        "echo" => match arguments {
            [value @ .., arrow, path] if arrow == ">" && path.starts_with("/proc/sys/") => {
                set(path, &value.join(" "), line, effects);
            }
            // HyStart follows RFC 9406 and has no parameters.
            [_, arrow, path] if arrow == ">" && path.starts_with("/sys/module/tcp_cubic/parameters/hystart") => {}
            _ => return Err(unmapped(words, line)),
        },
        // A queue of length zero drops everything; others only pace or reorder.
        "tc" if has("qdisc") && has("limit") && arguments.last().is_some_and(|last| last == "0") => {
            effects.push((line, Effect::Swallow(true)));
        }
        "tc" if has("qdisc") && (has("pfifo") || has("fq") || has("delete") || has("del") || has("noqueue")) => {
            effects.push((line, Effect::Swallow(false)));
        }
        "ip" if has("tcp_metrics") && has("flush") => effects.push((line, Effect::Forget)),
        "ip" if arguments.first().is_some_and(|object| object == "link") => {
            effects.extend(link(arguments, words, line)?.map(|effect| (line, effect)));
        }
        "ip" => effects.push((line, route(arguments, words, line)?)),
        "dd" => effects.push((line, file(arguments, line)?)),
        // The device here has no segmentation or merging.
        "ethtool" if has("-K") => {}
        // They read the kernel's counters.
        "nstat" | "grep" => {}
        "rm" | "sleep" | "true" | "sync" => {}
        _ if name.starts_with("sysctl_restore") => {}
        _ => return Err(unmapped(words, line)),
    }
    Ok(())
}

fn knob(name: &str, value: &str) -> Effect {
    Effect::Knob(name.to_owned(), value.to_owned())
}

fn set(name: &str, value: &str, line: u32, effects: &mut Vec<(u32, Effect)>) {
    let bare = name.rsplit(['.', '/']).next().unwrap_or(name);
    if DEAD.contains(&bare) {
        return;
    }
    // Public scripts set bits that Linux no longer uses.
    let flags = value.strip_prefix("0x").and_then(|digits| i64::from_str_radix(digits, 16).ok());
    match flags.filter(|_| bare == "tcp_fastopen") {
        Some(flags) => effects.push((line, knob(name, &(flags & 0x7ff).to_string()))),
        None => effects.push((line, knob(name, value))),
    }
}

/// `ip route change 192.0.2.1 via 192.168.0.2 dev tun0 mtu lock 640`, `ip -6 route del default`. There is one device.
fn route(arguments: &[String], words: &[String], line: u32) -> Result<Effect, ScriptError> {
    let everything = if arguments.iter().any(|word| word == "-6") { "::/0" } else { "0.0.0.0/0" };
    let mut arguments = arguments.iter().map(String::as_str).filter(|word| !["-4", "-6"].contains(word));
    let (object, verb) = (arguments.next(), arguments.next());
    let mut said = Vec::new();
    while let Some(word) = arguments.next() {
        match word {
            "dev" => drop(arguments.next()),
            "default" => said.push(everything),
            word => said.push(word),
        }
    }
    let said = said.join(" ");
    let effect = match (object, verb) {
        (Some("route"), Some("add" | "change" | "replace")) => said.parse().map(Effect::Route),
        (Some("route"), Some("del" | "delete")) => said.parse().map(Effect::Unroute),
        _ => return Err(unmapped(words, line)),
    };
    effect.map_err(|wrong: ParseRouteError| ScriptError::new(line, wrong.to_string()))
}

/// `ip link set dev tun0 mtu 1400 up`. There is one device, which is always up: `None`.
fn link(arguments: &[String], words: &[String], line: u32) -> Result<Option<Effect>, ScriptError> {
    let mut arguments = arguments.iter().map(String::as_str).skip(1);
    if arguments.next() != Some("set") {
        return Err(unmapped(words, line));
    }
    let (mut mtu, mut named) = (None, false);
    while let Some(word) = arguments.next() {
        match word {
            "mtu" => {
                let bytes = arguments.next().and_then(|text| text.parse::<u16>().ok()).filter(|mtu| *mtu >= 68);
                mtu = Some(bytes.ok_or_else(|| ScriptError::new(line, "the MTU of a link is 68 to 65535"))?);
            }
            "dev" if !named => named = arguments.next().is_some(),
            "up" => {}
            _ if !named => named = true,
            _ => return Err(unmapped(words, line)),
        }
    }
    Ok(mtu.map(Effect::Mtu))
}

fn unmapped(words: &[String], line: u32) -> ScriptError {
    ScriptError::unsupported(line, format!("the shell command `{}`", words.join(" ")))
}

/// `dd bs=1 count=5 if=/dev/zero of=/tmp/file`
fn file(arguments: &[String], line: u32) -> Result<Effect, ScriptError> {
    let value = |name: &str| arguments.iter().find_map(|argument| argument.strip_prefix(name)?.strip_prefix('='));
    let number = |name| value(name).map_or(Some(1), |text| text.parse::<usize>().ok());
    let size = number("bs").zip(number("count")).and_then(|(size, count)| size.checked_mul(count));
    match (value("of"), size.filter(|size| *size <= 1 << 30)) {
        (Some(path), Some(size)) => Ok(Effect::File(path.to_owned(), size)),
        _ => Err(ScriptError::new(line, "dd needs of=FILE, and bs= and count= of at most 1 GiB together")),
    }
}

/// Splits a block into commands and words; redirections other than `echo`'s are dropped.
fn commands(shell: &str, line: u32) -> Result<Vec<(u32, Vec<String>)>, ScriptError> {
    let mut commands = Vec::new();
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let (mut here, mut began) = (line, line);
    let mut rest = shell.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\\' => match rest.next() {
                Some('\n') => here += 1,
                Some(other) => word.get_or_insert_default().push(other),
                None => {}
            },
            '\n' | ';' | '&' | '|' | '#' if c != '#' || word.is_none() => {
                // `2>&1` is one word with its ampersand.
                if c == '&' && word.as_deref().is_some_and(|word| word.ends_with('>')) {
                    word.get_or_insert_default().push('&');
                    continue;
                }
                words.extend(word.take());
                if !words.is_empty() {
                    commands.push((began, tidy(std::mem::take(&mut words))));
                }
                if c == '#' {
                    while rest.next_if(|c| *c != '\n').is_some() {}
                }
                here += u32::from(c == '\n');
            }
            ' ' | '\t' | '\r' => words.extend(word.take()),
            '"' | '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next() {
                        Some(close) if close == c => break,
                        Some('$') if c == '"' && rest.peek() == Some(&'(') => word.push_str(&sum(&mut rest, here)?),
                        Some(inner) => {
                            here += u32::from(inner == '\n');
                            word.push(inner);
                        }
                        None => return Err(ScriptError::new(here, "a quoted word of a shell command has no end")),
                    }
                }
            }
            '$' if rest.peek() == Some(&'(') => {
                let sum = sum(&mut rest, here)?;
                word.get_or_insert_default().push_str(&sum);
            }
            _ => {
                if words.is_empty() && word.is_none() {
                    began = here;
                }
                word.get_or_insert_default().push(c);
            }
        }
    }
    words.extend(word);
    if !words.is_empty() {
        commands.push((began, tidy(words)));
    }
    Ok(commands)
}

/// Without redirections to nowhere.
fn tidy(words: Vec<String>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        if word == "2>&1" || (word.starts_with("2>") || word.starts_with('>')) && word.ends_with("/dev/null") {
            continue;
        }
        if word == ">" || word == "2>" {
            match words.next() {
                Some(target) if target != "/dev/null" => kept.extend([">".to_owned(), target]),
                _ => {}
            }
            continue;
        }
        match word.strip_prefix('>') {
            Some(target) if !target.is_empty() => kept.extend([">".to_owned(), target.to_owned()]),
            _ => kept.push(word),
        }
    }
    kept
}

/// `$((15*1024*1024))`, from the first parenthesis on: products and sums of numbers.
fn sum(rest: &mut std::iter::Peekable<std::str::Chars<'_>>, line: u32) -> Result<String, ScriptError> {
    let mut text = String::new();
    let mut open = 0;
    for c in rest.by_ref() {
        match c {
            '(' => open += 1,
            ')' => open -= 1,
            _ => text.push(c),
        }
        if open == 0 {
            break;
        }
    }
    let product = |term: &str| {
        term.split('*').map(|factor| factor.trim().parse::<i64>().ok()).try_fold(1_i64, |p, f| p.checked_mul(f?))
    };
    let total = text.split('+').map(product).try_fold(0_i64, |sum, term| sum.checked_add(term?));
    match total {
        Some(total) => Ok(total.to_string()),
        None => Err(ScriptError::unsupported(line, format!("`$({text})` in a shell command"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effects(shell: &str) -> Vec<Effect> {
        read(shell, 1, None).unwrap_or_else(|error| panic!("{error}")).into_iter().map(|(_, effect)| effect).collect()
    }

    #[test]
    fn the_ways_to_set_a_parameter() {
        for shell in [
            "sysctl -q net.ipv4.tcp_ecn=1",
            "sysctl -w net.ipv4.tcp_ecn=1 > /dev/null 2>&1",
            "echo 1 > /proc/sys/net/ipv4/tcp_ecn",
            "../common/set_sysctls.py \\\n /proc/sys/net/ipv4/tcp_ecn=1",
            "# why\nsysctl -q net.ipv4.tcp_ecn=1; nstat | grep TcpExt > /dev/null",
        ] {
            let [Effect::Knob(name, value)] = &effects(shell)[..] else { panic!("{shell}") };
            assert!(name.ends_with("tcp_ecn") && value == "1", "{shell}");
        }
    }

    #[test]
    fn values_with_blanks_and_sums() {
        let shell = "sysctl -q net.ipv4.tcp_rmem=\"4096 540000 $((15*1024*1024))\"";
        assert_eq!(effects(shell), [knob("net.ipv4.tcp_rmem", "4096 540000 15728640")]);
        assert_eq!(effects("./defaults.sh\n").len(), DEFAULTS.len());
    }

    #[test]
    fn what_means_nothing_here_is_passed_over_and_the_unknown_is_an_error() {
        assert_eq!(effects("tc qdisc add dev tun0 root pfifo"), [Effect::Swallow(false)]);
        assert_eq!(
            effects("tc qdisc del dev tun0 root 2>/dev/null ; tc qdisc add dev tun0 root pfifo limit 0").last(),
            Some(&Effect::Swallow(true))
        );
        assert_eq!(effects("ip tcp_metrics flush all > /dev/null 2>&1"), [Effect::Forget]);
        let said = effects("ip route change 192.0.2.1 via 192.168.0.2 dev tun0 advmss 600 mtu lock 640 initcwnd 11");
        let [Effect::Route(route)] = &said[..] else { panic!("{said:?}") };
        assert_eq!(route.to_string(), "192.0.2.1/32 via 192.168.0.2 mtu lock 640 advmss 600 initcwnd 11");
        for (shell, name) in [
            ("ip route del default", "0.0.0.0/0"),
            ("ip -6 route delete default via fd00::1 dev tun0", "::/0 via fd00::1"),
            ("ip route del 192.0.2.1", "192.0.2.1/32"),
        ] {
            assert_eq!(effects(shell), [Effect::Unroute(name.parse().expect("a name"))]);
        }
        for wrong in ["ip route del", "ip route add default via x", "ip route show", "ip rule del 192.0.2.1"] {
            assert!(read(wrong, 1, None).is_err(), "{wrong}");
        }
        for shell in ["ip link set dev tun0 mtu 1400", "ip link set tun0 up mtu 1400", "ip link set mtu 1400 dev tun0"]
        {
            assert_eq!(effects(shell), [Effect::Mtu(1400)], "{shell}");
        }
        assert_eq!(effects("ip link set dev tun0 up"), []);
        for wrong in ["ip link set tun0 mtu", "ip link set tun0 mtu 67", "ip link set tun0 down", "ip link add tun1"] {
            assert!(read(wrong, 1, None).is_err(), "{wrong}");
        }
        assert_eq!(effects("/tmp/sysctl_restore_${PPID}.sh"), []);
        assert_eq!(effects("dd bs=10 count=5 if=/dev/zero of=/tmp/f status=none"), [Effect::File("/tmp/f".into(), 50)]);
        let error = read("\n\niptables -F", 4, None).expect_err("there is no such thing here");
        assert_eq!((error.line, error.message.contains("iptables -F")), (6, true));
    }
}
