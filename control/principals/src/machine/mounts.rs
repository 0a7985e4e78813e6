//! Mounted hierarchies of control groups, from `/proc/PID/mountinfo` (`proc_pid_mountinfo(5)`).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use crate::controller::Version;

/// Mounted hierarchy, or a mounted part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    pub version: Version,
    /// Options of the hierarchy; those of version 1 contain the names of its controllers.
    options: Vec<String>,
    /// Group that is mounted: its path in the hierarchy.
    root: PathBuf,
    /// Mount point.
    pub point: PathBuf,
    pub is_read_only: bool,
}

impl Mount {
    /// Whether the mount shows version 2, or a version-1 hierarchy with the controller.
    pub fn has(&self, version: Version, controller: &str) -> bool {
        self.version == version
            && (version == Version::V2 || self.options.iter().any(|option| option == controller))
    }

    /// Returns the directory of a group; `None` if the group is outside the mounted part.
    pub fn directory(&self, group: &Path) -> Option<PathBuf> {
        let below = group.strip_prefix(&self.root).ok()?;
        // `/..` is the parent of the root of a cgroup namespace.
        let leaves = below.components().any(|part| part == Component::ParentDir);
        (!leaves).then(|| self.point.components().chain(below.components()).collect())
    }
}

/// Reads all mounts of control groups. Lines of other mounts and malformed lines are left out.
pub(super) fn mounts(text: &[u8]) -> Vec<Mount> {
    text.split(|byte| *byte == b'\n').filter_map(mount).collect()
}

/// Reads a line: `36 35 0:30 ROOT POINT rw,noatime shared:1 - TYPE SOURCE rw,cpu`. The number of fields
/// before the hyphen varies.
fn mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ').skip(3);
    let (root, point, mounted) = (fields.next()?, fields.next()?, fields.next()?);
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let (kind, _source, options) = (fields.next()?, fields.next()?, fields.next()?);
    let version = match kind {
        b"cgroup" => Version::V1,
        b"cgroup2" => Version::V2,
        _ => return None,
    };
    let words = |field: &[u8]| -> Vec<String> {
        String::from_utf8_lossy(field).split(',').map(str::to_owned).collect()
    };
    let options = words(options);
    let is_read_only = words(mounted).iter().chain(&options).any(|option| option == "ro");
    Some(Mount { version, options, root: unescaped(root), point: unescaped(point), is_read_only })
}

/// Decodes a path, in which the kernel writes spaces, tabs, line breaks and backslashes as `\ooo`.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        match octal(after).filter(|_| *first == b'\\') {
            Some((byte, after)) => {
                path.push(byte);
                rest = after;
            }
            None => {
                path.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(path).into()
}

/// Reads three octal digits; returns their value and the rest.
fn octal(text: &[u8]) -> Option<(u8, &[u8])> {
    let (digits, rest) = text.split_at_checked(3)?;
    let value = digits.iter().try_fold(0u16, |value, digit| {
        matches!(digit, b'0'..=b'7').then(|| value * 8 + u16::from(digit - b'0'))
    })?;
    Some((u8::try_from(value).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Mount {
        let found = mounts(line.as_bytes());
        assert_eq!(found.len(), 1, "{line}");
        found[0].clone()
    }

    #[test]
    fn version_1_mount_has_the_controllers_of_its_options() {
        let mount =
            one("33 31 0:30 / /cpu,cpuacct rw,nosuid shared:9 master:1 - cgroup cgroup rw,cpu,cpuacct");
        assert!(mount.has(Version::V1, "cpu") && mount.has(Version::V1, "cpuacct"));
        assert!(!mount.has(Version::V1, "memory") && !mount.has(Version::V2, "cpu"));
        assert!(!mount.is_read_only);
        let named = one("40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd");
        assert!(!named.has(Version::V1, "systemd"));
    }

    #[test]
    fn read_only_mount_is_detected_by_either_option_list() {
        assert!(one("30 23 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup2 rw,nsdelegate").is_read_only);
        assert!(one("30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 ro").is_read_only);
    }

    #[test]
    fn escapes_in_paths_are_decoded() {
        let mount = one(r"30 23 0:26 /a\040b /mnt/x\134y\040z\011 rw - cgroup2 cgroup2 rw");
        assert_eq!(mount.point, Path::new("/mnt/x\\y z\t"));
        assert_eq!(mount.directory(Path::new("/a b/c")), Some("/mnt/x\\y z\t/c".into()));
        // No escapes of the kernel.
        assert_eq!(unescaped(br"a\9b\77\400"), Path::new(r"a\9b\77\400"));
    }

    #[test]
    fn group_outside_the_mounted_part_has_no_directory() {
        let mount = one("30 23 0:26 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup2 rw");
        assert_eq!(mount.directory(Path::new("/docker/1")), Some("/sys/fs/cgroup".into()));
        assert_eq!(mount.directory(Path::new("/docker/1/x")), Some("/sys/fs/cgroup/x".into()));
        assert_eq!(mount.directory(Path::new("/docker/12")), None);
        assert_eq!(mount.directory(Path::new("/")), None);
        let in_namespace = one("30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw");
        assert_eq!(in_namespace.directory(Path::new("/../other")), None);
        let from_outside = one("30 23 0:26 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw");
        assert_eq!(from_outside.directory(Path::new("/")), None);
    }

    #[test]
    fn other_mounts_and_malformed_lines_are_left_out() {
        let text = "22 1 254:0 / / rw - ext4 /dev/vda rw\n\n30 23\n30 23 0:26 / /x rw cgroup2 cgroup2 rw\n\
                    30 23 0:26 / /x rw - cgroup2\n";
        assert_eq!(mounts(text.as_bytes()), []);
        assert_eq!(mounts(b"\xff \xff"), []);
    }
}
