//! Millrace, a software router that is programmed while it forwards.
//!
//! The one binary: the daemon (`run`), its client (all commands that speak to a running router), and what works
//! without one (`check`, `doctor`, `replay`, `lab`, `bench`). Exit codes: 0 done, 1 failed, 2 wrong usage, 3 a call of a plugin
//! did not return, 4 memory gave out. Why it failed
//! stands on standard error: one line, or one for each thing that is wrong with a file; with `--json` one of JSON.

mod arguments;
mod client;
mod commands;
mod completion;
mod log;
mod memory;
mod output;
mod pairs;

use std::process::ExitCode;

use crate::output::Failure;

#[global_allocator]
static MEMORY: memory::Guarded = memory::Guarded;

fn main() -> ExitCode {
    restore_broken_pipe();
    completion::answer();
    let arguments = match arguments::parse() {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() && std::env::args().any(|argument| argument == "--json") => {
            return fail(&Failure::usage(arguments::one_line(&error)), true);
        }
        Err(error) => error.exit(),
    };
    let json = arguments.json;
    match commands::run(arguments) {
        Ok(code) => code,
        Err(failure) => fail(&failure, json),
    }
}

/// Says on standard error why it failed.
fn fail(failure: &Failure, json: bool) -> ExitCode {
    if json {
        eprintln!("{}", failure.json());
    } else {
        failure.message.lines().for_each(|line| eprintln!("millrace: {line}"));
    }
    ExitCode::from(failure.code)
}

/// Lets `millrace … | head` end quietly, as other programs do: Rust ignores the signal from the start.
fn restore_broken_pipe() {
    // SAFETY: the default action of a signal calls no code of ours.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}
