use std::path::PathBuf;

use super::*;
use crate::test_support::Scratch;

const VERSION_1: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
38 31 0:35 / /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
const OF_VERSION_1: &str = "\
9:name=systemd:/
8:pids:/
7:blkio:/
4:memory:/process_api/2f4e
3:cpuset:/
2:cpuacct:/
1:cpu:/
0::/
";
const DEBIAN_12: &str = "\
22 28 0:20 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw
29 22 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:8 - cgroup2 cgroup2 rw,nsdelegate
";
const OF_DEBIAN_12: &str = "0::/user.slice/user-1000.slice/session-4.scope\n";
const HYBRID: &str = "\
30 25 0:26 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw,nsdelegate
31 25 0:27 / /sys/fs/cgroup/systemd rw,nosuid - cgroup cgroup rw,xattr,name=systemd
33 25 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct
34 25 0:30 / /sys/fs/cgroup/blkio ro,nosuid - cgroup cgroup rw,blkio
";
const OF_HYBRID: &str = "\
11:cpu,cpuacct:/user.slice
8:blkio:/user.slice
1:name=systemd:/user.slice/session-2.scope
0::/user.slice/session-2.scope
";

fn own(machine: &Machine, controller: Controller) -> Result<(Version, PathBuf), Obstacle> {
    machine.usable(controller).map(|place| (place.version, place.own.clone()))
}

#[test]
fn controllers_of_version_1_are_in_their_hierarchies() {
    let machine = Machine::located(VERSION_1.as_bytes(), OF_VERSION_1.as_bytes());
    for (controller, directory) in [
        (Controller::Cpu, "/sys/fs/cgroup/cpu"),
        (Controller::CpuAccounting, "/sys/fs/cgroup/cpuacct"),
        (Controller::Memory, "/sys/fs/cgroup/memory/process_api/2f4e"),
        (Controller::Disk, "/sys/fs/cgroup/blkio"),
        (Controller::Processes, "/sys/fs/cgroup/pids"),
    ] {
        assert_eq!(own(&machine, controller), Ok((Version::V1, directory.into())));
    }
    assert_eq!(machine.usable(Controller::Memory).unwrap().mount, PathBuf::from("/sys/fs/cgroup/memory"));
}

#[test]
fn controllers_of_version_2_share_one_hierarchy() {
    let machine = Machine::located(DEBIAN_12.as_bytes(), OF_DEBIAN_12.as_bytes());
    let directory = PathBuf::from("/sys/fs/cgroup/user.slice/user-1000.slice/session-4.scope");
    for controller in Controller::ALL {
        assert_eq!(own(&machine, controller), Ok((Version::V2, directory.clone())));
    }
}

#[test]
fn hybrid_machine_has_controllers_in_both_versions() {
    let machine = Machine::located(HYBRID.as_bytes(), OF_HYBRID.as_bytes());
    let first = (Version::V1, PathBuf::from("/sys/fs/cgroup/cpu,cpuacct/user.slice"));
    assert_eq!(own(&machine, Controller::Cpu), Ok(first.clone()));
    assert_eq!(own(&machine, Controller::CpuAccounting), Ok(first));
    let second = (Version::V2, PathBuf::from("/sys/fs/cgroup/unified/user.slice/session-2.scope"));
    assert_eq!(own(&machine, Controller::Memory), Ok(second));
    let mount = PathBuf::from("/sys/fs/cgroup/blkio");
    assert_eq!(own(&machine, Controller::Disk), Err(Obstacle::ReadOnly { mount }));
}

#[test]
fn accounting_of_version_2_does_not_serve_version_1() {
    let machine = Machine::located(HYBRID.as_bytes(), b"11:cpu:/\n0::/\n");
    let why = Obstacle::NotMounted { controller: "cpuacct" };
    assert_eq!(own(&machine, Controller::CpuAccounting), Err(why));
}

#[test]
fn machine_without_control_groups_has_no_controller() {
    for membership in ["", OF_DEBIAN_12] {
        let machine = Machine::located(b"22 1 254:0 / / rw - ext4 /dev/vda rw\n", membership.as_bytes());
        for state in machine.controllers() {
            let controller = state.controller.name(Version::V1);
            assert_eq!(state.usable().cloned(), Err(Obstacle::NotMounted { controller }));
        }
    }
}

#[test]
fn cgroup_namespace_shows_its_root_as_the_own_group() {
    let machine = Machine::located(DEBIAN_12.as_bytes(), b"0::/\n");
    assert_eq!(own(&machine, Controller::Cpu), Ok((Version::V2, "/sys/fs/cgroup".into())));
    // A mount from outside the namespace doesn't show the names above the namespace's root.
    let outside = DEBIAN_12.replace(" / /sys/fs/cgroup", " /../.. /sys/fs/cgroup");
    let machine = Machine::located(outside.as_bytes(), b"0::/\n");
    let why = Obstacle::OutsideMount { mount: "/sys/fs/cgroup".into(), group: "/".into() };
    assert_eq!(own(&machine, Controller::Cpu), Err(why));
}

#[test]
fn process_in_a_routers_group_belongs_to_the_group_in_which_the_router_was_started() {
    for (group, directory) in [
        ("/a/millrace-1/router", "/sys/fs/cgroup/a"),
        ("/a/millrace-1/other", "/sys/fs/cgroup/a/millrace-1/other"),
        ("/a/router", "/sys/fs/cgroup/a/router"),
        ("/a/millrace-1/router/control", "/sys/fs/cgroup/a"),
        ("/a/millrace-1/router/a/b", "/sys/fs/cgroup/a/millrace-1/router/a/b"),
        ("/a/router/control", "/sys/fs/cgroup/a/router/control"),
    ] {
        let machine = Machine::located(DEBIAN_12.as_bytes(), format!("0::{group}\n").as_bytes());
        assert_eq!(own(&machine, Controller::Cpu), Ok((Version::V2, directory.into())));
    }
}

#[test]
fn process_of_a_routers_thread_belongs_to_the_group_of_the_start_in_version_1() {
    let mounts = "30 25 0:26 / /cpu rw - cgroup cgroup rw,cpu\n";
    let mut machine = Machine::located(mounts.as_bytes(), b"2:cpu:/a/millrace-1/router/control\n");
    // Threads are asked for the group in which they are.
    assert_eq!(own(&machine, Controller::Cpu), Ok((Version::V1, "/cpu/a/millrace-1/router/control".into())));
    machine.leave_routers();
    assert_eq!(own(&machine, Controller::Cpu), Ok((Version::V1, "/cpu/a".into())));
}

#[test]
fn container_without_namespace_finds_its_mounted_group() {
    let mounts = "30 25 0:26 /docker/12 /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n\
                  31 25 0:26 /docker/12 /own\\040cpu rw - cgroup cgroup rw,cpu\n";
    let machine = Machine::located(mounts.as_bytes(), b"2:cpu:/docker/12/x y\n");
    assert_eq!(own(&machine, Controller::Cpu), Ok((Version::V1, "/own cpu/x y".into())), "writable first");
}

fn obstacle(scratch: &Scratch, controller: Controller) -> Option<Obstacle> {
    let mount = scratch.path().to_owned();
    probe(controller, &Place { version: Version::V2, own: mount.join("own"), mount })
}

#[test]
fn controller_that_the_parent_does_not_enable_is_not_delegated() {
    let root = Scratch::new(
        "delegation",
        &[
            ("cgroup.controllers", "cpuset cpu io memory\n"),
            ("own/cgroup.controllers", "memory\n"),
            ("own/cgroup.type", "domain\n"),
        ],
    );
    assert_eq!(obstacle(&root, Controller::Memory), None);
    assert_eq!(obstacle(&root, Controller::CpuAccounting), None);
    let directory = root.join("own");
    assert_eq!(
        obstacle(&root, Controller::Cpu),
        Some(Obstacle::NotDelegated { controller: "cpu", directory: directory.clone() })
    );
    let mount = root.path().to_owned();
    assert_eq!(obstacle(&root, Controller::Processes), Some(Obstacle::Absent { controller: "pids", mount }));
    fs::write(directory.join("cgroup.type"), "threaded\n").unwrap();
    assert_eq!(obstacle(&root, Controller::Memory), Some(Obstacle::Threaded { directory }));
}

#[test]
fn missing_directory_is_not_writable() {
    let root = Scratch::new("absent", &[("cgroup.controllers", "cpu\n")]);
    assert!(matches!(obstacle(&root, Controller::Cpu), Some(Obstacle::NotWritable { .. })));
}

#[test]
fn this_machine_is_detected() {
    let machine = Machine::detect().unwrap();
    assert_eq!(machine.controllers().len(), Controller::ALL.len());
    for state in machine.controllers() {
        match state.usable() {
            Ok(place) => assert!(place.own.is_dir() && place.own.starts_with(&place.mount)),
            Err(obstacle) => assert!(!obstacle.to_string().is_empty() && !obstacle.remedy().is_empty()),
        }
    }
}
