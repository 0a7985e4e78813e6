//! Identity of processes and threads: id and time of the start, since the kernel gives the id of an ended process to
//! another one.

use std::path::Path;

use nix::unistd::Pid;

use crate::files::read_if_present;

/// Process or thread: its id, and the time of its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    id: Pid,
    /// Start, in ticks since the start of the machine.
    started: u64,
}

impl Member {
    /// Returns the process or thread that has this id now; `None` if none has.
    pub fn of(id: Pid) -> Option<Self> {
        Self::in_directory(&Path::new("/proc").join(id.to_string()), id)
    }

    /// Returns the process of a directory such as `/proc/PID`.
    pub(crate) fn in_directory(directory: &Path, id: Pid) -> Option<Self> {
        let started = started(&read_if_present(&directory.join("stat"))?)?;
        Some(Self { id, started })
    }

    /// Returns the id.
    pub fn id(self) -> Pid {
        self.id
    }

    /// Whether the process or thread still has its id. It may have ended since, but nobody waited for it.
    pub fn has_its_id(self) -> bool {
        Self::of(self.id) == Some(self)
    }
}

/// Returns the time of the start in the text of `/proc/PID/stat`. The name in parentheses may contain any
/// character.
fn started(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_with_another_start_is_another_process() {
        let own = Member::of(Pid::this()).unwrap();
        assert!(own.has_its_id());
        assert!(!Member { started: own.started + 1, ..own }.has_its_id());
        assert_eq!(Member::of(Pid::from_raw(i32::MAX)), None);
    }

    #[test]
    fn start_is_found_behind_any_name() {
        let rest = "S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 9";
        assert_eq!(started(&format!("7 (a) b) {rest}")), Some(4711));
        assert_eq!(started("7 (a) S 1"), None);
    }
}
