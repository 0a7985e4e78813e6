//! Execution of the programs that build a lab, with their error messages.

use std::io::{self, Write};
use std::process::{Command, Output, Stdio};

use crate::error::LabError;
use crate::namespace::within;

/// Runs `ip ARGUMENTS`.
pub(crate) fn ip(arguments: &[&str]) -> Result<(), LabError> {
    let output = Command::new("ip").args(arguments).stdin(Stdio::null()).output();
    judge("ip", arguments, output)
}

/// Runs several `ip` commands in a namespace, in one process. Stops at the first failure.
pub(crate) fn ip_batch(namespace: &str, lines: &[String]) -> Result<(), LabError> {
    if lines.is_empty() {
        return Ok(());
    }
    let output = run_batch(namespace, lines).map_err(program("ip"))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = failed_line(&stderr).and_then(|number| lines.get(number - 1));
    let command = format!("ip -n {namespace} {}", line.map_or("-batch -", String::as_str));
    Err(LabError::Command { command, stderr: first_line(&stderr) })
}

fn run_batch(namespace: &str, lines: &[String]) -> io::Result<Output> {
    let mut command = Command::new("ip");
    command.args(["-n", namespace, "-batch", "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let mut text = lines.join("\n");
    text.push('\n');
    if let Some(mut stdin) = child.stdin.take() {
        // If `ip` ends early, its exit status tells more than the broken pipe.
        let _ = stdin.write_all(text.as_bytes());
    }
    child.wait_with_output()
}

/// Parses the number of the failed line from the error message of `ip`, such as `Command failed -:3`.
fn failed_line(stderr: &str) -> Option<usize> {
    let digits = stderr.rsplit("Command failed -:").next().filter(|rest| rest.len() < stderr.len())?;
    digits.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok().filter(|number| *number > 0)
}

/// Runs a program in a namespace, with the caller's mounts. (`ip netns exec` would change them.)
pub(crate) fn run_within(namespace: &str, name: &str, arguments: &[&str]) -> Result<(), LabError> {
    let output = within(namespace, || Command::new(name).args(arguments).stdin(Stdio::null()).output())?;
    judge(name, arguments, output)
}

fn judge(name: &str, arguments: &[&str], output: io::Result<Output>) -> Result<(), LabError> {
    let output = output.map_err(program(name))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = first_line(&String::from_utf8_lossy(&output.stderr));
    Err(LabError::Command { command: format!("{name} {}", arguments.join(" ")), stderr })
}

fn program(name: &str) -> impl FnOnce(io::Error) -> LabError {
    let program = name.to_owned();
    move |source| LabError::Program { program, source }
}

fn first_line(text: &str) -> String {
    text.lines().find(|line| !line.trim().is_empty()).unwrap_or("no error message").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_failed_line_of_a_batch_is_found() {
        assert_eq!(failed_line("RTNETLINK answers: File exists\nCommand failed -:3\n"), Some(3));
        assert_eq!(failed_line("Cannot open network namespace"), None);
    }

    #[test]
    fn a_program_that_is_absent_is_named() {
        let error = judge("no-such-program", &[], Command::new("no-such-program").output()).unwrap_err();
        assert!(error.to_string().starts_with("cannot run no-such-program: "), "{error}");
    }

    #[test]
    fn failed_command_is_reported_with_its_output() {
        let output = Command::new("sh").args(["-c", "echo; echo no such thing >&2; exit 3"]).output();
        let error = judge("ip", &["link", "show"], output).unwrap_err();
        assert_eq!(error.to_string(), "`ip link show` failed: no such thing");
    }
}
