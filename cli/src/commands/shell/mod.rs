//! The command `shell`: runs commands, typed or from a file. Each line holds the arguments of `millrace` and
//! runs in a process of its own, so no command can end the shell.

mod line;

use std::io::{BufRead, BufReader, IsTerminal};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor};
use signal_hook::consts::SIGINT;

use self::line::{Order, Words, order};
use crate::arguments::{Connection, Shell};
use crate::commands::lab::exit_code;
use crate::completion::ask_at;
use crate::output::Failure;

const PROMPT: &str = "millrace> ";
/// Maximum number of lines in the history file.
const REMEMBERED: usize = 1000;

/// Reads and runs commands to the end of the input; a failed command ends a script.
pub fn shell(shell: &Shell, connection: &Connection, json: bool) -> Result<ExitCode, Failure> {
    if let Some(file) = &shell.file {
        let opened = std::fs::File::open(file);
        let opened =
            opened.map_err(|error| Failure::new(format!("can't read {}: {error}", file.display())))?;
        return script(BufReader::new(opened), &file.display().to_string(), shell, (connection, json));
    }
    if !std::io::stdin().is_terminal() {
        return script(std::io::stdin().lock(), "standard input", shell, (connection, json));
    }
    ask_at(connection.clone());
    interactive(connection, json)
}

/// Runs the lines of a file.
fn script(
    lines: impl BufRead,
    name: &str,
    shell: &Shell,
    (connection, json): (&Connection, bool),
) -> Result<ExitCode, Failure> {
    let mut failed = None;
    for (number, line) in (1..).zip(lines.lines()) {
        let at = |what: &str| format!("{name}, line {number}: {what}");
        let line = line.map_err(|error| Failure::new(at(&format!("can't be read: {error}"))))?;
        let failure = match order(&line) {
            Err(why) => Failure::usage(at(&why)),
            Ok(Order::Nothing) => continue,
            Ok(Order::End) => break,
            Ok(Order::Run(words)) => match run(&words, (connection, json), Stdio::null())? {
                0 => continue,
                code => Failure { code, ..Failure::new(at(&format!("`{}` failed", line.trim()))) },
            },
        };
        if !shell.keep_going {
            return Err(failure);
        }
        eprintln!("millrace: {}", failure.message);
        failed = Some(failure.code);
    }
    Ok(ExitCode::from(failed.unwrap_or(0)))
}

/// Reads and runs lines from a terminal.
fn interactive(connection: &Connection, json: bool) -> Result<ExitCode, Failure> {
    // Ctrl-C ends the running command, not the shell: child processes get the default action of SIGINT.
    signal_hook::flag::register(SIGINT, Arc::new(AtomicBool::new(false))).map_err(Failure::new)?;
    let config = Config::builder().completion_type(CompletionType::List).max_history_size(REMEMBERED);
    let config = config.map_err(Failure::new)?.build();
    let mut editor: Editor<Words, FileHistory> = Editor::with_config(config).map_err(Failure::new)?;
    editor.set_helper(Some(Words));
    let history = history_file();
    if let Some(file) = &history {
        // At the first run there is no history file.
        let _ = editor.load_history(file);
    }
    loop {
        let line = match editor.readline(PROMPT) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => return Ok(ExitCode::SUCCESS),
            Err(error) => return Err(Failure::new(format!("can't read from the terminal: {error}"))),
        };
        if editor.add_history_entry(line.as_str()).unwrap_or(false)
            && let Some(file) = &history
        {
            // Without a writable history file, the shell still works.
            let _ = editor.append_history(file);
        }
        match order(&line) {
            Ok(Order::Nothing) => {}
            Ok(Order::End) => return Ok(ExitCode::SUCCESS),
            // Ignore the exit code: the command's process has already printed its failure.
            Ok(Order::Run(words)) => _ = run(&words, (connection, json), Stdio::inherit())?,
            Err(why) => eprintln!("millrace: {why}"),
        }
    }
}

/// Runs one command in a child process; returns its exit code, as in shells.
fn run(words: &[String], (connection, json): (&Connection, bool), input: Stdio) -> Result<u8, Failure> {
    let program = std::env::current_exe().map_err(Failure::new)?;
    let mut command = Command::new(program);
    command.args(connection.arguments()).args(json.then_some("--json")).args(words).stdin(input);
    let status = command.status().map_err(|error| Failure::new(format!("can't run a command: {error}")))?;
    Ok(exit_code(status))
}

/// Returns the history file in the user's state directory (XDG Base Directory Specification), which is
/// created if missing.
fn history_file() -> Option<PathBuf> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state"));
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let directory = state.or_else(home)?.join("millrace");
    std::fs::create_dir_all(&directory).ok()?;
    Some(directory.join("history"))
}
