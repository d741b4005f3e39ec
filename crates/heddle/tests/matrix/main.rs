//! The fault matrix: random data both ways through every fault of a link, in virtual time, under every architecture at
//! either end. `cargo xtask soak` draws cells without end; here is every level of every fault, each cell under four
//! pairs of architectures, so that every architecture runs a cell or its neighbours.

#[path = "../world/mod.rs"]
mod world;

mod cell;
mod flow;
mod probability;
mod run;

use std::io::Write;
use std::sync::{Arc, Mutex};

use every_arch::every_arch;
use heddle::{ALL_ARCHITECTURES, Architecture};

use cell::Cell;

/// One of this many architectures is the server of a cell.
const SHARE: usize = 4;

/// The cells of one architecture, each with another at the client's end.
fn share(arch: Architecture, cells: Vec<Cell>) -> impl Iterator<Item = Cell> {
    let index = ALL_ARCHITECTURES.iter().position(|name| *name == arch.to_string()).expect("a listed plan");
    let share = cells.into_iter().enumerate().filter(move |(number, _)| (number + index) % SHARE == 0);
    share.map(move |(number, cell)| Cell {
        architectures: [arch, cell::architecture(index + 1 + 5 * (number / SHARE))],
        ..cell
    })
}

/// A precondition of the matrix: the comparison finds a change that no receiver can detect.
#[test]
fn a_forged_data_is_found_by_the_comparison() {
    let cell = Cell { faults: "out forge 5%".to_owned(), ..Cell::plain(1) };
    let wrong = run::run(&cell, None).err().expect("the data was changed");
    assert_eq!(wrong, "server to client: what arrived is not what was sent");
}

/// The other precondition: a stuck connection is found although its sender keeps trying.
#[test]
fn a_connection_that_is_stuck_is_found() {
    let cell = Cell { faults: "mtu 200".to_owned(), ..Cell::plain(1) };
    let wrong = run::run(&cell, None).err().expect("no text arrives");
    assert!(wrong.starts_with("nothing arrives for "), "{wrong}");
}

/// A cell is reproducible in every frame and its time, under architectures of every kind.
#[test]
fn a_seed_means_the_same_run() {
    for pair in [0x00, 0x24, 0x8b, 0xe9] {
        let cell = Cell {
            faults: "loss 3% reorder 5% distance 3 dup 3% corrupt 1% jitter 2ms".to_owned(),
            ..Cell::draw(0x5eed00 | pair)
        };
        let [first, second] = [(); 2].map(|()| {
            let trace = Trace::default();
            let outcome = run::run(&cell, Some(Box::new(trace.clone()))).map(|outcome| outcome.took);
            (outcome, trace.0.lock().expect("nobody panics").clone())
        });
        assert!(first.0.is_ok(), "{cell}: {:?}", first.0);
        assert!(first == second && first.1.len() > 1000, "{cell}");
    }
}

/// Keeps what is recorded.
#[derive(Clone, Default)]
struct Trace(Arc<Mutex<Vec<u8>>>);

impl Write for Trace {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("nobody panics").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn all_survive(cells: impl Iterator<Item = Cell>) {
    let failures: Vec<String> =
        cells.filter_map(|cell| run::run(&cell, None).err().map(|wrong| format!("{cell}: {wrong}"))).collect();
    assert!(failures.is_empty(), "{} cells failed:\n{}", failures.len(), failures.join("\n"));
}

#[every_arch]
fn data_survives(arch: Architecture) {
    all_survive(share(arch, cell::grid()));
}

/// Devices of two and four queue pairs, each with a driver of its own and a connection that is hashed to it.
#[every_arch]
fn data_survives_on_several_queues(arch: Architecture) {
    all_survive(share(arch, cell::on_several_queues()));
}
