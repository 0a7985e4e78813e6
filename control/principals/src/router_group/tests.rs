use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};

use nix::unistd::{Pid, geteuid, gettid};

use super::*;
use crate::directory::members;
use crate::files::{read, write};
use crate::launch::Launch;
use crate::machine::Place;

fn place(version: Version, own: &str) -> Place {
    Place { version, mount: "/sys/fs/cgroup".into(), own: own.into() }
}

#[test]
fn router_has_one_branch_per_hierarchy() {
    let machine = Machine::with(Controller::Disk, place(Version::V1, "/a/b"));
    let branches = branches(&machine, "millrace-1").unwrap();
    let expected = Branch {
        version: Version::V1,
        controllers: vec![Controller::Disk],
        path: "/a/b/millrace-1".into(),
        home: "/a/b".into(),
    };
    assert_eq!(branches, [expected]);
}

#[test]
fn invalid_name_creates_nothing() {
    let machine = Machine::with(Controller::Disk, place(Version::V1, "/absent"));
    for name in ["", "..", "a/b", &"a".repeat(250)] {
        let error = RouterGroup::create(&machine, name).unwrap_err();
        assert!(matches!(error, GroupError::Name { .. }), "{error}");
    }
}

/// Version-2 group that contains this process and a child of it until it is dropped.
struct OwnGroup {
    /// Group that contained this process before.
    before: PathBuf,
    path: PathBuf,
    child: Child,
}

impl OwnGroup {
    /// Enters a new group; prints the reason if that can't be done here.
    fn enter() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mount =
            mounts.lines().find(|line| line.contains(" - cgroup2 ")).and_then(|line| line.split(' ').nth(4));
        let membership = fs::read_to_string("/proc/self/cgroup").unwrap();
        let group = membership.lines().find_map(|line| line.strip_prefix("0::/"));
        let why = match (mount, group) {
            _ if !geteuid().is_root() => "needs root",
            (Some(mount), Some(group)) => {
                let before = PathBuf::from(mount).join(group);
                let path = before.join(format!("principals-test-{}", std::process::id()));
                fs::create_dir(&path).unwrap();
                let child = Command::new("sleep").arg("30").spawn().unwrap();
                let own = Self { before, path, child };
                for process in [std::process::id(), own.child.id()] {
                    write(&own.path.join("cgroup.procs"), &process.to_string()).unwrap();
                }
                return Some(own);
            }
            _ => "no hierarchy of version 2 is mounted",
        };
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{why}");
        println!("skipped: {why}");
        None
    }

    fn processes(&self, directory: &Path) -> Vec<bool> {
        let members = members(&directory.join("cgroup.procs"));
        [std::process::id(), self.child.id()].map(|one| members.contains(&one.cast_signed())).to_vec()
    }
}

impl Drop for OwnGroup {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let deadline = Instant::now() + REMOVAL;
        let _ = clear(Version::V2, &self.path, &self.before, deadline);
    }
}

/// This kernel's version-2 hierarchy may have no controllers: then the rules for processes and threads hold,
/// and no limits.
#[test]
fn version_2_moves_the_router_into_a_leaf_and_back() {
    let Some(own) = OwnGroup::enter() else { return };
    let place = Place { version: Version::V2, mount: own.before.clone(), own: own.path.clone() };
    let machine = Machine::with(Controller::CpuAccounting, place);
    let mut router = RouterGroup::create(&machine, "two").unwrap();
    let directory = own.path.join("millrace-two");
    assert_eq!(own.processes(&directory.join("router")), [true, true]);
    assert_eq!(own.processes(&own.path), [false, false]);

    let alice = router.create_group("alice", Members::Processes).unwrap();
    let mut command = Command::new("sleep");
    command.arg("30");
    let mut child = Launch::new(&alice, command).unwrap().start().unwrap();
    let id = child.id().cast_signed();
    let in_alice = members(&directory.join("alice/cgroup.procs"));
    let usage = alice.usage().unwrap();

    let workers = router.create_group("workers", Members::Threads).unwrap();
    let (thread_in, thread_out) = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            workers.add_thread(gettid()).unwrap();
            let list = directory.join("router/workers/cgroup.threads");
            (members(&list).contains(&gettid().as_raw()), {
                drop(workers);
                members(&directory.join("router/cgroup.threads")).contains(&gettid().as_raw())
            })
        });
        thread.join().unwrap()
    });
    drop(alice);
    let in_router = members(&directory.join("router/cgroup.procs")).contains(&id);
    let twice = RouterGroup::create(&machine, "two").map(|_| ());
    router.remove().unwrap();
    let in_own = members(&own.path.join("cgroup.procs")).contains(&id);
    child.kill().unwrap();
    child.wait().unwrap();

    assert_eq!(in_alice, [id]);
    assert!(usage.tasks == Some(1) && usage.cpu.is_some(), "{usage:?}");
    assert!(thread_in && thread_out);
    assert!(in_router && in_own, "a principal's process moves to the router's group, then back");
    assert!(matches!(twice, Err(GroupError::InUse { .. })));
    assert_eq!(own.processes(&own.path), [true, true]);
    assert!(!directory.exists());
    router.remove().unwrap();
}

#[test]
fn group_of_threads_refuses_processes_and_resources_of_processes() {
    let Ok(machine) = Machine::detect() else { return };
    if !geteuid().is_root() || machine.usable(Controller::Cpu).is_err() {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "needs root and the controller cpu");
        return println!("skipped: needs root and the controller cpu");
    }
    // Only the processor time, so that a version-2 machine need not move this process.
    let place = machine.usable(Controller::Cpu).unwrap().clone();
    if place.version == Version::V2 {
        return println!("skipped: integration tests cover version 2");
    }
    let router =
        RouterGroup::create(&Machine::with(Controller::Cpu, place), &format!("t{}", std::process::id()))
            .unwrap();
    let mut threads = router.create_group("workers", Members::Threads).unwrap();
    let error = threads.add_process(Pid::this()).unwrap_err();
    assert!(matches!(error, GroupError::Members { holds: "threads", .. }), "{error}");
    let limits = crate::Limits { memory: std::num::NonZeroU64::new(1 << 20), ..Default::default() };
    let error = threads.set(&limits).unwrap_err();
    assert!(matches!(error, GroupError::OfThreads { controller: Controller::Memory }), "{error}");
    let mut processes = router.create_group("alice", Members::Processes).unwrap();
    let error = processes.set(&limits).unwrap_err();
    assert!(matches!(error, GroupError::Unavailable { controller: Controller::Memory, .. }), "{error}");
    assert!(matches!(processes.add_thread(gettid()), Err(GroupError::Members { .. })));
    let error = router.create_group("alice", Members::Processes).unwrap_err();
    assert!(matches!(error, GroupError::Exists { .. }), "{error}");
    let shares = read(&processes.directories().next().unwrap().join("cpu.shares")).unwrap();
    assert_eq!(shares, "1024");
    processes.remove().unwrap();
    processes.remove().unwrap();
    assert!(matches!(processes.add_process(Pid::this()), Err(GroupError::Removed { .. })));
    assert!(matches!(processes.usage(), Err(GroupError::Removed { .. })));
}
