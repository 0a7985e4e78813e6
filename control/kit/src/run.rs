//! Execution of programs, with their output.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::{KitError, Progress};

/// Runs a compiler until it ends, and reports its output line by line.
///
/// # Errors
/// The compiler can't be started, or fails.
pub(crate) fn run(command: &mut Command, progress: &mut dyn FnMut(Progress<'_>)) -> Result<(), KitError> {
    let program = command.get_program().to_owned();
    let io = || KitError::io(Path::new(&program));
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(io())?;
    let output = match child.stderr.take() {
        Some(stderr) => tell(stderr, progress),
        None => String::new(),
    };
    let status = child.wait().map_err(io())?;
    if status.success() {
        return Ok(());
    }
    let program = program.to_string_lossy().into_owned();
    Err(KitError::Compiler { program, status: status.to_string(), output })
}

/// Reports each line of `stderr`, and returns all lines.
fn tell(stderr: impl Read, progress: &mut dyn FnMut(Progress<'_>)) -> String {
    let mut output = String::new();
    // An unreadable line ends the loop. The program's exit status tells whether it failed.
    for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches('\r');
        progress(Progress::Output(line));
        output.push_str(line);
        output.push('\n');
    }
    output
}

/// Returns the output of a program without surrounding blanks; `None` when the program can't be started or
/// fails.
pub(crate) fn ask(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = output.status.success().then(|| String::from_utf8(output.stdout).ok())??;
    Some(text.trim().to_owned())
}
