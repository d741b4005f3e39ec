//! Prints the walk of one segment and one write through the stack, for `cargo xtask walk`.

#[path = "../tests/walk/mod.rs"]
mod walk;
#[path = "../tests/world/mod.rs"]
mod world;

fn main() {
    print!("{}", walk::page());
}
