//! Runs packet scripts under one architecture: `cargo run --example drill -- FILE..`. The command `heddle drill` does more.

use drill::batch::{Batch, find};
use drill::run::Options;
use heddle_drill as drill;
use stack::Plan;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let paths: Vec<_> = std::env::args_os().skip(1).map(Into::into).collect();
    let plan = std::env::var("PLAN").map_or(Ok(Plan::Up), |name| name.parse())?;
    let mut options = Options::new(plan);
    options.ipv6 = std::env::var_os("IPV6").is_some();
    let batch = Batch { plans: vec![plan], options, defines: Vec::new(), jobs: 1, captures: None };
    for outcome in batch.run(&find(&paths)?) {
        match outcome.fault {
            None => println!("{}: ok", outcome.path.display()),
            Some(fault) => println!("{}", fault.at(&outcome.path)),
        }
    }
    Ok(())
}
