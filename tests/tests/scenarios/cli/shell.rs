//! Shell: commands from a terminal, from a pipe and from a file.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::{Duration, Instant};

use millrace_testkit::{Ground, Line};
use nix::pty::openpty;

/// Terminal with a running program.
struct Terminal {
    ours: std::fs::File,
    seen: String,
}

impl Terminal {
    /// Reads the terminal's output until it contains `words`. Returns the output since the last call.
    fn wait_for(&mut self, words: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(15);
        let mut some = [0; 4096];
        while !self.seen.contains(words) {
            assert!(Instant::now() < deadline, "no {words:?} in {:?}", self.seen);
            match self.ours.read(&mut some) {
                Ok(count) => self.seen += &String::from_utf8_lossy(&some[..count]),
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        std::mem::take(&mut self.seen)
    }

    fn write(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).unwrap();
    }
}

/// Process that is killed at the end of the test.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Makes reads of a descriptor non-blocking.
fn without_waiting(descriptor: &OwnedFd) {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    fcntl(descriptor, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
}

#[test]
fn commands_are_typed_completed_interrupted_and_remembered() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let router = crate::support::router(&line);
    router.ask(&["instance", "create", "statistics", "stats-of-h1"]);
    let pty = openpty(None, None).unwrap();
    without_waiting(&pty.master);
    let mut terminal = Terminal { ours: pty.master.into(), seen: String::new() };
    let mut command = router.client();
    let end = || Stdio::from(pty.slave.try_clone().unwrap());
    let state = line.file("state");
    command.arg("shell").stdin(end()).stdout(end()).stderr(end());
    command.env("TERM", "xterm").env("XDG_STATE_HOME", &state);
    let mut child = Ended(command.spawn().unwrap());
    terminal.wait_for("millrace> ");
    // Completion of commands and names.
    terminal.write("sho\tpor\t\r");
    let shown = terminal.wait_for("r2");
    assert!(shown.contains("rx b/s") && shown.contains("r1"), "{shown:?}");
    terminal.write("control stats-\tread\r");
    let shown = terminal.wait_for("sizes ");
    assert!(shown.contains("control stats-of-h1"), "{shown:?}");
    // A failed command doesn't end the shell. Ctrl-C discards a line.
    terminal.write("route add nonsense\r");
    terminal.wait_for("nonsense\"");
    terminal.write("show por\x03");
    terminal.wait_for("millrace> ");
    terminal.write("events --follow\r");
    terminal.wait_for("events --follow");
    terminal.write("exit\r\x04");
    // Ctrl-C ends only the running command, although the terminal sends it to the shell as well.
    router.ask(&["show", "status"]);
    let pid = nix::unistd::Pid::from_raw(child.0.id() as i32);
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    for child in children.split_whitespace() {
        let child = nix::unistd::Pid::from_raw(child.parse().unwrap());
        nix::sys::signal::kill(child, nix::sys::signal::Signal::SIGINT).unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(15);
    let status = loop {
        if let Some(status) = child.0.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < deadline, "the shell goes on: {:?}", terminal.seen);
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(status.code(), Some(0));
    let history = std::fs::read_to_string(state.join("millrace/history")).unwrap();
    assert!(history.contains("show ports") && history.contains("route add nonsense"), "{history}");
}

#[test]
fn command_file_ends_at_the_first_failure_unless_keep_going() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let router = crate::support::router(&line);
    let text = "# two instances\n\ninstance create statistics one\ninstance create nonsense two\n\
                instance create statistics three\n";
    let file = line.write("commands.txt", text).display().to_string();
    let ended = router.try_ask(&["shell", &file]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.stderr.contains("commands.txt, line 4: `instance create nonsense two` failed"),
        "{ended:?}"
    );
    let names = || {
        let instances = router.json(&["instance", "list"]);
        instances
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(), ["one"]);
    let mut command = router.client();
    command.args(["shell", "--keep-going"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let input = "instance create nonsense two\ninstance create statistics three\nbind 'x\n";
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(
        errors.contains("standard input, line 1: ") && errors.contains("line 3: unclosed quote"),
        "{errors}"
    );
    assert_eq!(names(), ["one", "three"]);
    router.try_ask(&["shell", "/nowhere"]).assert_refused(1, &["/nowhere"]);
}
