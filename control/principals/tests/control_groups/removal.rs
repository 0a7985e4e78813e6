//! Removal of groups, and of the groups that dead routers leave.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use millrace_principals::{Controller, GroupError, Launch, Limits, Machine, Members, RouterGroup, Version};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{Testbed, eventually, ground};

/// Returns the lines of `/proc/PID/cgroup`.
fn memberships(process: u32) -> String {
    fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap()
}

#[test]
fn removed_group_leaves_its_processes_to_the_parent() {
    let Some(testbed) = Testbed::new(&[Controller::Cpu]) else { return };
    let mut alice = testbed.group("alice", &Limits::default());
    let process = alice.start("exec sleep 20");
    eventually("the process is in the group", || memberships(process).contains("/alice"));
    let directories: Vec<PathBuf> = alice.group.directories().map(Into::into).collect();
    alice.group.remove().unwrap();
    alice.group.remove().unwrap();
    assert!(directories.iter().all(|path| !path.exists()), "{directories:?}");
    let after = memberships(process);
    kill(Pid::from_raw(process.cast_signed()), Signal::SIGKILL).unwrap();
    assert!(!after.contains("/alice"), "{after}");
    assert!(matches!(alice.group.usage(), Err(GroupError::Removed { .. })));
    // The name is free again.
    testbed.group("alice", &Limits::default());
}

/// Script of a process that starts its successor and ends, as long as the file exists.
const CHAIN: &str = r#"[ -e "$FLAG" ] && sh -c "$0" "$0" & exit"#;

/// File that ends the chains when it is dropped.
struct Flag(PathBuf);

impl Drop for Flag {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn group_with_chains_of_forking_processes_is_removed_and_they_go_on() {
    let Some(testbed) = Testbed::new(&[Controller::Cpu]) else { return };
    let mut alice = testbed.group("alice", &Limits::default());
    let flag = Flag(std::env::temp_dir().join(format!("millrace-chain-{}", std::process::id())));
    fs::write(&flag.0, "").unwrap();
    let sleeper = alice.start("exec sleep 20");
    for _ in 0..40 {
        alice.start(&format!("export FLAG={}; exec sh -c '{CHAIN}' '{CHAIN}'", flag.0.display()));
    }
    std::thread::sleep(Duration::from_millis(100));
    let begun = std::time::Instant::now();
    let removed = alice.group.remove();
    let took = begun.elapsed();
    println!("removed after {took:?}");
    // The chains still run, outside of the group.
    let chains = || {
        let all = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
        let is_chain = |path: &PathBuf| {
            fs::read_to_string(path.join("cmdline")).is_ok_and(|text| text.contains("$FLAG"))
        };
        all.filter(is_chain).count()
    };
    eventually("chains run", || chains() > 0);
    let after = memberships(sleeper);
    kill(Pid::from_raw(sleeper.cast_signed()), Signal::SIGKILL).unwrap();
    drop(flag);
    eventually("chains end", || chains() == 0);
    let members = removed.unwrap();
    assert!(members.iter().any(|member| member.id().as_raw() == sleeper.cast_signed()), "{members:?}");
    assert!(!after.contains("/alice"), "{after}");
}

#[test]
fn dropped_router_removes_all_its_groups() {
    let Some(testbed) = Testbed::new(&[Controller::Cpu]) else { return };
    let mut alice = testbed.group("alice", &Limits::default());
    let process = alice.start("exec sleep 20");
    let directories: Vec<PathBuf> = testbed.router.directories().map(Into::into).collect();
    drop(testbed.router);
    let left: Vec<_> = directories.iter().filter(|path| path.exists()).collect();
    let after = memberships(process);
    kill(Pid::from_raw(process.cast_signed()), Signal::SIGKILL).unwrap();
    assert!(left.is_empty(), "{left:?}");
    assert!(!after.contains("millrace-test"), "{after}");
}

/// Name of the router that the helper process creates.
const HELPER: &str = "MILLRACE_PRINCIPALS_TEST_ROUTER";

/// Process with a router of its own. Dropping it kills the process.
struct OtherRouter {
    child: Child,
    output: BufReader<ChildStdout>,
    directories: Vec<PathBuf>,
    /// Process of a principal, which outlives a killed router.
    process: Option<i32>,
}

impl OtherRouter {
    fn start(name: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "removal::helper_runs_a_router_until_its_input_ends", "--nocapture"])
            .env(HELPER, name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // The pipe stays open until the end, because the test harness writes its result there.
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut router = Self { child, output, directories: Vec::new(), process: None };
        for line in router.output.by_ref().lines().map_while(Result::ok) {
            if let Some(directory) = line.strip_prefix("directory ") {
                router.directories.push(directory.into());
            } else if let Some(process) = line.strip_prefix("process ") {
                router.process = Some(process.parse().unwrap());
                break;
            }
        }
        router
    }

    /// Lets the router end in good order.
    fn end(&mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
        self.process = None;
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for OtherRouter {
    fn drop(&mut self) {
        self.kill();
        if let Some(process) = self.process {
            let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
        }
    }
}

#[test]
fn helper_runs_a_router_until_its_input_ends() {
    let Ok(name) = std::env::var(HELPER) else { return };
    let machine = Machine::detect().unwrap();
    let router = RouterGroup::create(&machine, &name).unwrap();
    let group = router.create_group("alice", Members::Processes).unwrap();
    let mut command = Command::new("sleep");
    command.arg("60").stdout(Stdio::null());
    let mut child = Launch::new(&group, command).unwrap().start().unwrap();
    // The test harness writes to the same line first.
    println!();
    router.directories().for_each(|path| println!("directory {}", path.display()));
    println!("process {}", child.id());
    let mut input = String::new();
    std::io::stdin().read_to_string(&mut input).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn leftover_of_a_dead_router_is_removed_by_the_next_one() {
    let Some((machine, _alone)) = ground(&[Controller::Cpu]) else { return };
    let place = machine.usable(Controller::Cpu).unwrap();
    if place.version == Version::V2 && place.own.join("cgroup.type").exists() {
        return println!("not of version 2: there no process enters the group that a dead router has left");
    }
    let number = std::process::id();
    // The next router has the same name, or another one.
    let name = format!("{number}-1");
    for next in [name.clone(), format!("{number}-2")] {
        let mut dead = OtherRouter::start(&name);
        let process = dead.process.expect("the router has started a process");
        assert!(dead.directories.iter().all(|path| path.join("alice").is_dir()), "{:?}", dead.directories);
        let living = RouterGroup::create(&machine, &name).map(|_| ());
        assert!(matches!(living, Err(GroupError::InUse { .. })), "{living:?}");
        dead.kill();
        assert!(dead.directories.iter().all(|path| path.join("alice").is_dir()), "{:?}", dead.directories);
        let router = RouterGroup::create(&machine, &next).unwrap();
        assert!(dead.directories.iter().all(|path| !path.join("alice").exists()), "{:?}", dead.directories);
        let after = memberships(process.cast_unsigned());
        assert!(!after.contains("alice"), "{after}");
        drop(router);
        assert!(dead.directories.iter().all(|path| !path.exists()), "{:?}", dead.directories);
        drop(dead);
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn successor_that_the_router_starts_has_a_group_beside_it() {
    let Some(mut testbed) = Testbed::new(&[Controller::Cpu]) else { return };
    let directory = |path: &Path| path.parent().map(Path::to_owned);
    let own: Vec<_> = testbed.router.directories().map(directory).collect();
    let mut successor = OtherRouter::start(&format!("next-{}", std::process::id()));
    let theirs: Vec<_> = successor.directories.iter().map(|path| directory(path)).collect();
    assert_eq!(theirs, own);
    // In version 2 this process can't return to its group while the successor distributes its resources.
    let place = testbed.machine.usable(Controller::Cpu).unwrap();
    let must_stay = place.version == Version::V2 && place.own.join("cgroup.type").exists();
    let removed = testbed.router.remove();
    assert!(
        matches!((must_stay, &removed), (false, Ok(())) | (true, Err(GroupError::NotEmpty { .. }))),
        "{removed:?}"
    );
    assert!(successor.directories.iter().all(|path| path.join("alice").is_dir()));
    successor.end();
    testbed.router.remove().unwrap();
    assert!(successor.directories.iter().all(|path| !path.exists()), "{:?}", successor.directories);
}
