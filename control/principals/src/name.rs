//! Names of control groups.

use crate::error::GroupError;

/// Maximum length of a group's name in bytes, as of any file.
pub(crate) const LONGEST: usize = 255;

/// Name of the group with the router's own processes and threads.
pub(crate) const ROUTER: &str = "router";

/// Beginning of the names of routers' groups.
pub(crate) const PREFIX: &str = "millrace-";

/// Beginnings of the kernel's file names in a group.
const KERNEL: [&str; 8] = ["cgroup.", "cpu.", "cpuacct.", "memory.", "blkio.", "io.", "pids.", "cpuset."];

/// Whether a directory has the name of a router's group: [`PREFIX`] with a process id, and a number if the
/// process has several routers. Groups of others, such as `millrace-web`, have other names.
pub(crate) fn is_routers(directory: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some(name) = directory.strip_prefix(PREFIX) else { return false };
    let (id, number) = name.split_once('-').map_or((name, None), |(id, number)| (id, Some(number)));
    is_number(id) && number.is_none_or(is_number)
}

/// Checks the name of a group.
///
/// # Errors
/// The name is empty, longer than [`LONGEST`], `.`, `..`, contains a slash or a control character, or is
/// the name of a kernel file.
pub(crate) fn check(name: &str) -> Result<(), GroupError> {
    let is_kernels = KERNEL.iter().any(|begin| name.starts_with(begin))
        || matches!(name, "tasks" | "notify_on_release" | "release_agent");
    let why = if name.is_empty() {
        "is empty"
    } else if name.len() > LONGEST {
        "is too long"
    } else if name == "." || name == ".." {
        "is a relative path"
    } else if name.contains('/') {
        "contains a slash"
    } else if name.chars().any(char::is_control) {
        "contains a control character"
    } else if is_kernels {
        "is the name of a kernel file"
    } else {
        return Ok(());
    };
    Err(GroupError::Name { name: name.to_owned(), why })
}

/// Checks the name of a group in a router's group.
///
/// # Errors
/// [`check`] refuses the name, or it is the name of the group with the router's own processes.
pub(crate) fn check_in_router(name: &str) -> Result<(), GroupError> {
    match name {
        ROUTER => Err(GroupError::Name { name: name.to_owned(), why: "is reserved for the router itself" }),
        _ => check(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_leave_the_group_or_clash_are_refused() {
        let long = "a".repeat(256);
        for name in ["", ".", "..", "/", "a/b", "../a", "a\0b", "a\nb", "a\tb", &long, "tasks", "cpu.shares"]
        {
            assert!(matches!(check(name), Err(GroupError::Name { .. })), "{name:?}");
        }
    }

    #[test]
    fn groups_of_routers_are_distinguished_from_groups_of_others() {
        assert!(["millrace-7", "millrace-7-2"].into_iter().all(is_routers));
        for other in [
            "millrace-",
            "millrace-web",
            "millrace-7.service",
            "millrace-7-",
            "millrace--7",
            "7",
            "millrace-7-2-1",
        ] {
            assert!(!is_routers(other), "{other}");
        }
    }

    #[test]
    fn other_names_are_accepted() {
        for name in ["alice", "team a", "…", ".hidden", "a..b", "router2", "cpu", &"a".repeat(255)] {
            assert!(check_in_router(name).is_ok(), "{name:?}");
        }
        assert!(check("router").is_ok() && check_in_router("router").is_err());
    }
}
