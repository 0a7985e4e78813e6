//! Control group that limits this process's memory.
//!
//! If a group has used up its memory, the kernel kills a process of the group at its next page fault. So
//! requests that take memory are refused earlier.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Control group of this process, of cgroup version 1 or 2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    directory: PathBuf,
    /// Names of the files with the memory limit, and with the memory usage.
    limit: &'static str,
    used: &'static str,
    /// Key in `memory.stat` for the part of the usage that the kernel reclaims before it kills a process.
    spare: &'static str,
}

/// Returns the control group of this process, read at the first call; `None` without one.
pub fn group() -> Option<&'static Group> {
    static GROUP: OnceLock<Option<Group>> = OnceLock::new();
    let find = || Group::of(&fs::read_to_string("/proc/self/cgroup").ok()?, Path::new("/sys/fs/cgroup"));
    GROUP.get_or_init(find).as_ref()
}

impl Group {
    /// Finds the group in `said`, the text of `/proc/PID/cgroup`. The text contains a path. The group's
    /// directory has this path below `mounted`; in a container, it may be `mounted` itself.
    fn of(said: &str, mounted: &Path) -> Option<Self> {
        let lines = said.lines().filter_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            Some((parts.next()?, parts.next()?.trim_start_matches('/')))
        });
        lines.into_iter().find_map(|(controllers, path)| {
            let (root, limit, used, spare) = match controllers {
                "" => (mounted.to_owned(), "memory.max", "memory.current", "inactive_file "),
                _ if controllers.split(',').any(|one| one == "memory") => (
                    mounted.join("memory"),
                    "memory.limit_in_bytes",
                    "memory.usage_in_bytes",
                    "total_inactive_file ",
                ),
                _ => return None,
            };
            let found = [root.join(path), root].into_iter().find(|directory| directory.join(used).is_file());
            found.map(|directory| Self { directory, limit, used, spare })
        })
    }

    /// Returns the number of bytes that the process may still use in the group. Without a limit, this number
    /// is close to `u64::MAX`.
    pub fn left(&self) -> u64 {
        let used = number(&self.directory.join(self.used)).unwrap_or(0);
        let about = fs::read_to_string(self.directory.join("memory.stat")).unwrap_or_default();
        let spare = about.lines().find_map(|line| line.strip_prefix(self.spare)?.parse().ok()).unwrap_or(0);
        self.limit().saturating_sub(used.saturating_sub(spare))
    }

    /// Whether `bytes` bytes are left in the group.
    pub fn has(&self, bytes: usize) -> bool {
        self.left() >= bytes as u64
    }

    /// Returns the limit in bytes. Without a limit, returns `u64::MAX` for version 2, whose file then holds a
    /// word, and a huge number for version 1.
    pub fn limit(&self) -> u64 {
        number(&self.directory.join(self.limit)).unwrap_or(u64::MAX)
    }
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_memory_of_a_group_includes_reclaimable_memory() {
        let mounted = std::env::temp_dir().join(format!("millrace-groups-{}", std::process::id()));
        for (said, at, files) in [
            (
                "4:memory:/a/b\n",
                "memory/a/b",
                ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"],
            ),
            (
                "5:cpu,memory:/elsewhere\n",
                "memory",
                ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"],
            ),
            ("0::/a\n", "a", ["memory.max", "memory.current", "inactive_file"]),
        ] {
            let directory = mounted.join(at);
            fs::create_dir_all(&directory).unwrap();
            assert_eq!(Group::of(said, &mounted), None, "{said}");
            fs::write(directory.join(files[1]), "900\n").unwrap();
            let group = Group::of(said, &mounted).unwrap();
            fs::write(directory.join(files[0]), "max\n").unwrap();
            assert!(group.has(1 << 50), "{said}");
            fs::write(directory.join(files[0]), "1000\n").unwrap();
            fs::write(directory.join("memory.stat"), format!("cache 500\n{} 300\n", files[2])).unwrap();
            assert_eq!((group.left(), group.has(400), group.has(401)), (400, true, false), "{said}");
            fs::remove_dir_all(&mounted).unwrap();
        }
    }
}
