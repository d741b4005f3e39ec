//! Runs packet scripts under one architecture: `cargo run --example drill -- FILE..`. The command `heddle drill` does
//! more.

use drill::batch::{Batch, find};
use drill::run::Options;
use heddle_drill as drill;
use stack::Architecture;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let paths: Vec<_> = std::env::args_os().skip(1).map(Into::into).collect();
    let arch = std::env::var("PLAN").map_or(Ok(Architecture::reference()), |name| name.parse())?;
    let mut options = Options::new(arch);
    if let Ok(family) = std::env::var("FAMILY") {
        options.family = family.parse().expect("an address family");
    }
    let families = vec![options.family];
    let batch = Batch { architectures: vec![arch], families, options, defines: Vec::new(), jobs: 1, captures: None };
    for outcome in batch.run(&find(&paths)?) {
        println!("{}", outcome.line().unwrap_or_else(|| format!("{}: ok", outcome.path.display())));
    }
    Ok(())
}
