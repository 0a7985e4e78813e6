//! Runs a benchmark on a binary: `cargo run --release -p millrace-bench --example bench -- BINARY NAME`.

use std::path::PathBuf;
use std::process::ExitCode;

use millrace_bench::{Options, list, run};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(binary), Some(name)) = (arguments.next(), arguments.next()) else {
        for bench in list() {
            println!("{}: {}", bench.name, bench.summary);
        }
        return ExitCode::from(2);
    };
    let mut progress = |line: &str| eprintln!("{line}");
    let mut options =
        Options { binary: PathBuf::from(binary), workload: None, case: None, progress: &mut progress };
    match run(&name, &mut options) {
        Ok(results) => {
            for result in results {
                println!("{}", serde_json::to_string(&result).unwrap_or_default());
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
