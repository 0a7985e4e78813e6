//! Processes that join groups.

use std::fs;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::Duration;

use millrace_principals::{Controller, GroupError, Limits, Member};
use nix::unistd::Pid;

use crate::support::{Testbed, skip};

/// Number of attempts to start a process with a given id, which others may get first.
const ATTEMPTS: usize = 50;

/// Process that ends with the test.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Self(Command::new("sleep").arg("20").spawn().unwrap())
    }

    fn id(&self) -> Pid {
        Pid::from_raw(self.0.id().cast_signed())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Starts a process that has this id.
fn with_id(id: Pid) -> Option<Sleeper> {
    let attempt = || {
        fs::write("/proc/sys/kernel/ns_last_pid", (id.as_raw() - 1).to_string()).ok()?;
        Some(Sleeper::start()).filter(|sleeper| sleeper.id() == id)
    };
    (0..ATTEMPTS).find_map(|_| attempt())
}

#[test]
fn process_that_has_the_id_of_an_ended_one_does_not_join() {
    let Some(testbed) = Testbed::new(&[Controller::Cpu]) else { return };
    let alice = testbed.group("alice", &Limits::default());
    let first = Sleeper::start();
    let member = Member::of(first.id()).unwrap();
    drop(first);
    // The kernel's times of starts have steps of 10 ms.
    sleep(Duration::from_millis(30));
    let Some(second) = with_id(member.id()) else { return skip("no other process has got the id") };
    let joined = || fs::read_to_string(format!("/proc/{}/cgroup", second.id())).unwrap().contains("/alice");
    let refused = alice.group.add_member(member);
    assert!(matches!(refused, Err(GroupError::Join { .. })), "{refused:?}");
    assert!(!joined());
    alice.group.add_member(Member::of(second.id()).unwrap()).unwrap();
    assert!(joined());
}
