//! Millrace, a software router that is programmable while it forwards.
//!
//! This is the only binary. It is the daemon (`run`), its client (all commands for a running router), and the
//! commands that need no router (`check`, `doctor`, `replay`, `lab`, `bench`). Exit codes: 0 success, 1
//! failure, 2 wrong usage, 3 hung call of a plugin, 4 out of memory. A failed command prints the reason on
//! standard error: one line, or one line for each error in a file; with `--json`, one line of JSON.

// A full disk must not end a command by a panic: `output::put`.
#![deny(clippy::print_stdout)]

mod arguments;
mod client;
mod commands;
mod completion;
mod log;
mod memory;
mod output;
mod pairs;
mod usage;

use std::process::ExitCode;

#[global_allocator]
static MEMORY: memory::Guarded = memory::Guarded;

fn main() -> ExitCode {
    restore_broken_pipe();
    completion::answer();
    let mut json = std::env::args_os().any(|argument| argument == "--json");
    let ended = arguments::parse(json).and_then(|arguments| {
        json = arguments.json;
        commands::run(arguments)
    });
    match ended {
        Ok(code) => output::unprinted().map_or(code, |failure| failure.report(json)),
        Err(failure) => failure.report(json),
    }
}

/// Restores the default action of SIGPIPE, which Rust ignores from the start, so that `millrace … | head`
/// ends quietly.
fn restore_broken_pipe() {
    // SAFETY: the default action of a signal runs no code of this program.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}
