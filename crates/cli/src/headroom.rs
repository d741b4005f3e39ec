//! Checks that a command's threads and memory are available, before anything is opened.
//!
//! An allocation that fails ends the process, a runtime that gets no thread panics, and a stack without packet buffers
//! receives nothing. So a command first starts as many threads as it will need, all at once, and meanwhile allocates
//! the memory that its start needs; then it releases everything.
//!
//! If address space is limited all threads allocate from one heap ([`prepare`]). Otherwise the C library would reserve
//! 64 MiB for each thread until nothing is left, and the success of a start would depend on chance.

use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Builder};

use rustix::process::{Resource, getrlimit};
use sync::Real;

use crate::failure::Failure;

const MIB: usize = 1 << 20;
/// Memory of a start besides its threads' stacks: tables, packet buffers, and room for the first connections.
const START: usize = 32 * MIB;
/// Upper bound for the start of one thread: a stack of 2 MiB with its guard, and a stack for signals.
const THREAD: usize = 4 * MIB;
/// Memory freed before an error message is built.
const RESERVE: usize = 256 << 10;
/// Memory for the command line, which is read before a command says how much it needs.
const COMMAND_LINE: usize = MIB;
/// Address space of the program itself, with its libraries; about a third of it is used.
const PROGRAM: usize = 64 * MIB;

/// Prepares for a limited address space. Must be called first, before there are threads.
///
/// # Errors
/// The limit leaves no memory to read the command line: the sentence to print. Nothing has been allocated for it.
pub fn prepare() -> Result<(), &'static str> {
    if getrlimit(Resource::As).current.is_none() {
        return Ok(());
    }
    Real::allocate_from_one_heap();
    match reserve(COMMAND_LINE) {
        Some(_) => Ok(()),
        None => Err("too little memory to read the command line: raise the limit (`ulimit -v`)"),
    }
}

/// Checks that `threads` more threads can be started, with their initial memory.
///
/// # Errors
/// The system does not provide them.
pub fn check(threads: usize) -> Result<(), Failure> {
    let cushion = reserve(RESERVE);
    let had = cushion.is_some() && try_out(threads);
    drop(cushion);
    if had { Ok(()) } else { Err(Failure::Failed(sentence(threads))) }
}

/// That many bytes, if they can be allocated.
fn reserve(bytes: usize) -> Option<Vec<u8>> {
    let mut memory = Vec::new();
    memory.try_reserve_exact(bytes).ok().map(|()| memory)
}

fn try_out(threads: usize) -> bool {
    if reserve(START).is_none() {
        return false;
    }
    let gate = Mutex::new(());
    thread::scope(|scope| {
        // No thread panics while holding it.
        let closed = gate.lock().unwrap_or_else(PoisonError::into_inner);
        let (started, starts) = channel();
        let all = (0..threads).all(|_| {
            let (started, gate) = (started.clone(), &gate);
            let body = move || {
                let _ = started.send(());
                drop(gate.lock());
            };
            let spawned = reserve(THREAD).is_some() && Builder::new().spawn_scoped(scope, body).is_ok();
            // One at a time, so that each start sees the memory left by the one before.
            spawned && starts.recv().is_ok()
        });
        let had = all && reserve(START).is_some();
        drop(closed);
        had
    })
}

fn sentence(threads: usize) -> String {
    let ample = (PROGRAM + START + threads * THREAD) / 1024;
    let limit = match getrlimit(Resource::As).current {
        Some(bytes) => format!("; `ulimit -v` is {}, and {ample} is always enough", bytes / 1024),
        None => String::new(),
    };
    format!(
        "too little memory, or too few processes, to start {threads} threads: raise the limits (`ulimit -v`, `ulimit -u`) \
         or use fewer threads{limit}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_can_be_had_are_had_and_ended() {
        assert_eq!(check(3), Ok(()));
        assert_eq!(check(0), Ok(()));
    }

    #[test]
    fn what_nobody_has_is_refused() {
        assert!(reserve(isize::MAX as usize).is_none());
        let said = sentence(9);
        assert!(said.contains("9 threads") && said.contains("ulimit -v") && said.contains("fewer"), "{said}");
    }
}
