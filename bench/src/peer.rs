//! Peers that are libraries. For each, a small C program is compiled on demand, and driven by lines of text.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::BenchError;
use crate::interrupt::check;
use crate::testbed::process::{is_installed, run};
use crate::testbed::scratch::Scratch;

/// Header file that the peers' C programs share.
const DPDK: &str = include_str!("../peers/dpdk.h");

/// Compiles a C program with a library for this machine's processor. Returns `None` without a compiler or the
/// library.
pub(crate) fn compile(
    scratch: &Scratch,
    name: &str,
    source: &str,
    library: &str,
) -> Result<Option<PathBuf>, BenchError> {
    let there =
        is_installed("cc") && is_installed("pkg-config") && run("pkg-config", &["--exists", library]).is_ok();
    if !there {
        return Ok(None);
    }
    scratch.write("dpdk.h", DPDK)?;
    let (program, file) = (scratch.file(name), scratch.write(&format!("{name}.c"), source)?);
    let program_text = program.to_string_lossy();
    let flags = run("pkg-config", &["--cflags", "--libs", library])?;
    let mut arguments = vec!["-O3", "-march=native", "-o", &program_text, &file];
    arguments.extend(flags.split_ascii_whitespace());
    run("cc", &arguments)?;
    Ok(Some(program))
}

/// Running peer process. Dropping this kills the process.
#[derive(Debug)]
pub(crate) struct Peer {
    name: String,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Peer {
    pub fn start(program: &Path, arguments: &[&str]) -> Result<Self, BenchError> {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let fail = |source| BenchError::Program { program: name.clone(), source };
        let mut child = command.spawn().map_err(fail)?;
        let broken = || fail(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        let input = child.stdin.take().ok_or_else(broken)?;
        let output = BufReader::new(child.stdout.take().ok_or_else(broken)?);
        Ok(Self { name, child, input, output })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a line to the peer and returns its answer line.
    pub fn ask(&mut self, line: &str) -> Result<String, BenchError> {
        check()?;
        writeln!(self.input, "{line}").map_err(BenchError::system(format!("write to {}", self.name)))?;
        let mut answer = String::new();
        self.output.read_line(&mut answer).map_err(BenchError::system(format!("read from {}", self.name)))?;
        check()?;
        if answer.is_empty() {
            return Err(BenchError::measurement(
                &self.name,
                format!("the peer exited without an answer to `{line}`"),
            ));
        }
        Ok(answer.trim_end().to_owned())
    }

    /// Sends a line to the peer and returns the first number of its answer.
    pub fn ask_number(&mut self, line: &str) -> Result<u64, BenchError> {
        let number = self.ask_numbers(line)?.and_then(|numbers| numbers.first().copied());
        number.ok_or_else(|| BenchError::measurement(&self.name, "the peer sent an invalid answer"))
    }

    /// Sends a line to the peer and returns the numbers of its answer; `None` if the answer is not numbers.
    pub fn ask_numbers(&mut self, line: &str) -> Result<Option<Vec<u64>>, BenchError> {
        let answer = self.ask(line)?;
        Ok(answer.split_ascii_whitespace().map(|word| word.parse().ok()).collect())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Ignore errors: both calls fail only if the process was already waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_compiled_and_answers() {
        let _alone = crate::interrupt::FLAG_IN_USE.lock().unwrap();
        let scratch = Scratch::new().unwrap();
        let source = "#include <stdio.h>\nint main(void) { char line[9]; while (fgets(line, 9, stdin)) { \
                      printf(\"7 %s\", line); fflush(stdout); } }";
        assert_eq!(compile(&scratch, "none", source, "no-such-library").unwrap(), None);
        let Some(program) = compile(&scratch, "echo", source, "libdpdk").unwrap() else {
            return crate::testbed::network::skip("no compiler or no DPDK");
        };
        let mut peer = Peer::start(&program, &[]).unwrap();
        assert_eq!(peer.ask("who").unwrap(), "7 who");
        assert_eq!(peer.ask_numbers("8").unwrap(), Some(vec![7, 8]));
        assert_eq!(peer.ask_numbers("none").unwrap(), None);
        let directory = scratch.file("");
        drop(scratch);
        assert!(!directory.exists());
    }
}
