//! Tests of processes that have the id of an ended process.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::geteuid;

use super::*;
use crate::Launch;
use crate::test_support::Scratch;

/// Shell and its child.
struct Family {
    parent: Child,
    child: Pid,
}

impl Family {
    /// Starts a shell in a group, and its child there.
    fn start(group: &Group) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 20 & echo $!; wait"]).stdout(Stdio::piped());
        let mut parent = Launch::new(group, command).unwrap().start().unwrap();
        let mut line = String::new();
        BufReader::new(parent.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { parent, child: Pid::from_raw(line.trim().parse().unwrap()) }
    }

    /// Returns the group of the child.
    fn group(&self) -> PathBuf {
        Machine::of_thread(self.child).unwrap().place(Controller::Cpu).unwrap().own.clone()
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        let _ = kill(self.child, Signal::SIGKILL);
        let _ = self.parent.kill();
        let _ = self.parent.wait();
    }
}

/// Creates a group beside this process.
fn group(machine: &Machine, name: &str) -> Group {
    let place = machine.usable(Controller::Cpu).unwrap();
    let path = place.own.join(format!("principals-{name}-{}", std::process::id()));
    fs::create_dir(&path).unwrap();
    let (version, controllers, home) = (place.version, vec![Controller::Cpu], place.own.clone());
    Group {
        name: name.to_owned(),
        members: Members::Processes,
        machine: Arc::new(machine.clone()),
        branches: vec![Branch { version, controllers, path, home }],
        limits: Limits::default(),
        devices: Vec::new(),
    }
}

/// Returns an ended process, whose id another process has.
fn ended(id: Pid) -> Member {
    let stat = format!("{id} (ended) S 1{}", " 0".repeat(20));
    let scratch = Scratch::new(&format!("ended-{id}"), &[("stat", &stat)]);
    Member::in_directory(scratch.path(), id).unwrap()
}

#[test]
fn process_with_the_id_of_an_ended_one_is_in_the_group_of_its_parent() {
    let machine = Machine::detect().unwrap();
    if !geteuid().is_root() || machine.usable(Controller::Cpu).is_err() {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"));
        return println!("skipped: needs root and control groups");
    }
    let (alice, bob) = (group(&machine, "alice"), group(&machine, "bob"));
    let path = |group: &Group| group.directories().next().unwrap().to_owned();
    // The group of the parent, and whether the child was moved instead of the ended process.
    for (origin, is_moved) in [(&bob, true), (&bob, false), (&alice, false)] {
        let family = Family::start(origin);
        if is_moved {
            alice.add_process(family.child).unwrap();
            assert_eq!(family.group(), path(&alice));
        }
        let outcome = alice.confirm(ended(family.child), Ok(()));
        let is_refused = matches!(&outcome, Err(GroupError::Join { source, .. })
            if source.raw_os_error() == Some(Errno::ESRCH as i32));
        assert!(is_refused, "{outcome:?}");
        assert_eq!(family.group(), path(origin), "{is_moved}");
    }
}
