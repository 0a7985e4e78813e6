//! Plugin process for tests, without the router's binary.

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Err(error) = millrace_plugin_process::child::run(&arguments);
    let _ = writeln!(std::io::stderr(), "{error}");
    ExitCode::FAILURE
}
