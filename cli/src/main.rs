//! Millrace, a software router that is programmed while it forwards.
//!
//! The one binary: the daemon (`run`), its client (all commands that speak to a running router), and what works
//! without one (`check`, `doctor`, `replay`, `lab`, `bench`). Exit codes: 0 done, 1 failed, 2 wrong usage.

mod arguments;
mod client;
mod commands;
mod log;
mod output;

use std::process::ExitCode;

use clap::Parser;

use crate::arguments::Arguments;
use crate::output::Failure;

fn main() -> ExitCode {
    restore_broken_pipe();
    let arguments = Arguments::parse();
    match commands::run(arguments) {
        Ok(code) => code,
        Err(Failure { message, code, .. }) => {
            eprintln!("millrace: {message}");
            ExitCode::from(code)
        }
    }
}

/// Lets `millrace … | head` end quietly, as other programs do: Rust ignores the signal from the start.
fn restore_broken_pipe() {
    // SAFETY: the default action of a signal calls no code of ours.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}
