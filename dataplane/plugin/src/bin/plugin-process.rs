//! Process of a plugin for tests, without the router's binary and without confinement.

use std::io::Write;
use std::os::fd::AsFd;
use std::process::ExitCode;

fn main() -> ExitCode {
    let (object, memory) = (std::io::stdin(), std::io::stdout());
    let Err(why) = millrace_plugin::process::serve(object.as_fd(), memory.as_fd(), || Ok(()));
    let _ = writeln!(std::io::stderr(), "{why}");
    ExitCode::FAILURE
}
