//! Writes a report from synthetic results, to view the page without measuring: `synthetic_report DIRECTORY`.

#[path = "../tests/synthetic/mod.rs"]
mod synthetic;

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(directory) = std::env::args_os().nth(1) else {
        eprintln!("usage: synthetic_report DIRECTORY");
        return ExitCode::from(2);
    };
    let results = synthetic::results();
    println!("{}", lab::table::comparison(&results.rows).render(100));
    match lab::report::write_or_print(&PathBuf::from(directory), &results, &mut std::io::stdout()) {
        Ok(index) => {
            println!("{}", index.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
