use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::unistd::{Pid, geteuid};

use super::super::Group;
use super::*;
use crate::test_support::Scratch;
use crate::{CpuWeight, Launch, Limits, Machine, Place, RouterGroup};

#[test]
fn refused_removal_leaves_members_and_limits_as_they_were() {
    let machine = Machine::detect().unwrap();
    if !geteuid().is_root() || machine.usable(Controller::Cpu).is_err() {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"));
        return println!("skipped: needs root and control groups");
    }
    let router = RouterGroup::create(&machine, &format!("{}-9", std::process::id())).unwrap();
    let mut group = router.create_group("alice", Members::Processes).unwrap();
    let limits = Limits { cpu_weight: Some(CpuWeight::new(200).unwrap()), ..Limits::default() };
    group.set(&limits).unwrap();
    let mut command = Command::new("sleep");
    let mut child = Launch::new(&group, {
        command.arg("20");
        command
    })
    .unwrap()
    .start()
    .unwrap();
    let id = Pid::from_raw(child.id().cast_signed());
    let memberships = || fs::read_to_string(format!("/proc/{id}/cgroup")).unwrap();
    let member = Member::of(id).unwrap();
    let before = memberships();
    let home = group.branches.last().unwrap().home.clone();
    group.branches.last_mut().unwrap().home = "/nowhere".into();
    let refused = group.remove_until(Instant::now() + Duration::from_millis(50));
    let (after, files) = (memberships(), stops(&group));
    group.branches.last_mut().unwrap().home = home;
    let removed = group.remove();
    let last = memberships();
    child.kill().unwrap();
    child.wait().unwrap();
    let refused = refused.unwrap_err();
    assert!(
        matches!(&refused, GroupError::NotEmpty { members, .. } if members == &[id.as_raw()]),
        "{refused}"
    );
    assert_eq!(after, before);
    assert!(files.iter().all(|value| value == "0" || value == "max"), "{files:?}");
    assert_eq!(removed.unwrap(), [member]);
    assert!(!last.contains("/alice"), "{last}");
    assert!(!member.has_its_id());
}

/// Returns the values of the files by which the processes of a group stop.
fn stops(group: &Group) -> Vec<String> {
    let files = ["cgroup.freeze", "pids.max"];
    let paths = files.iter().flat_map(|name| group.branches.iter().map(|branch| branch.file(name)));
    paths.filter_map(|path| read_if_present(&path)).collect()
}

#[test]
fn directory_removed_before_the_failure_exists_again() {
    let scratch = Scratch::new("removal-restored", &[("b/alice/file", "")]);
    fs::create_dir_all(scratch.join("a/alice/child")).unwrap();
    let branch = |name: &str| Branch {
        version: Version::V1,
        controllers: vec![Controller::CpuAccounting],
        path: scratch.join(name),
        home: scratch.path().to_owned(),
    };
    let place = Place { version: Version::V1, mount: scratch.join("a"), own: scratch.join("a") };
    let mut group = Group {
        name: "alice".to_owned(),
        members: Members::Processes,
        machine: Arc::new(Machine::with(Controller::CpuAccounting, place)),
        branches: vec![branch("a/alice"), branch("b/alice")],
        limits: Limits::default(),
        devices: Vec::new(),
    };
    let refused = group.remove_until(Instant::now());
    assert!(matches!(refused, Err(GroupError::File { action: "remove", .. })), "{refused:?}");
    assert!(scratch.join("a/alice").is_dir());
    fs::remove_file(scratch.join("b/alice/file")).unwrap();
    assert_eq!(group.remove_until(Instant::now()).unwrap(), []);
    assert!(!scratch.join("a/alice").exists() && !scratch.join("b/alice").exists());
}
