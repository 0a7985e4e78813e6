//! Groups of a process, from `/proc/PID/cgroup` (`cgroups(7)`).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use crate::controller::Version;

/// Group of a process in one hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Membership {
    pub version: Version,
    controllers: Vec<String>,
    /// Path of the group in its hierarchy.
    pub group: PathBuf,
}

impl Membership {
    /// Whether the hierarchy is of version 1 and has the controller.
    pub fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|name| name == controller)
    }
}

/// Reads all groups of a process. Malformed lines are left out.
pub(super) fn memberships(text: &[u8]) -> Vec<Membership> {
    text.split(|byte| *byte == b'\n').filter_map(membership).collect()
}

/// Reads a line: `4:cpu,cpuacct:/PATH`, or `0::/PATH` for version 2. The path may contain colons.
fn membership(line: &[u8]) -> Option<Membership> {
    let mut fields = line.splitn(3, |byte| *byte == b':').skip(1);
    let (controllers, group) = (fields.next()?, fields.next()?);
    if !group.starts_with(b"/") {
        return None;
    }
    let version = if controllers.is_empty() { Version::V2 } else { Version::V1 };
    let controllers = String::from_utf8_lossy(controllers).split(',').map(str::to_owned).collect();
    Some(Membership { version, controllers, group: OsStr::from_bytes(group).into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_both_versions_are_read() {
        let found = memberships(b"9:name=systemd:/\n4:cpu,cpuacct:/a:b/c d\n0::/user.slice\n");
        let groups: Vec<_> = found.iter().map(|one| (one.version, one.group.to_str().unwrap())).collect();
        assert_eq!(groups, [(Version::V1, "/"), (Version::V1, "/a:b/c d"), (Version::V2, "/user.slice")]);
        assert!(found[1].has("cpuacct") && !found[1].has("memory") && !found[2].has("cpu"));
    }

    #[test]
    fn malformed_lines_are_left_out() {
        assert_eq!(memberships(b"\n4:cpu\n4:cpu:relative\n:\n\xff\n"), []);
    }
}
