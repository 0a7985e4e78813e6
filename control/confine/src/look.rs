//! Inspection of a thread's confinement.

use std::io;

/// State of a thread's confinement, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confinement {
    /// Effective capabilities of the thread, one bit each.
    pub capabilities: u64,
    /// Whether programs that the thread starts gain no privileges.
    pub no_new_privileges: bool,
    /// Whether the thread's system calls are filtered.
    pub is_filtered: bool,
}

impl Confinement {
    /// Whether the thread has no capabilities, can gain none, and has filtered system calls.
    pub fn is_complete(self) -> bool {
        self.capabilities == 0 && self.no_new_privileges && self.is_filtered
    }
}

/// Reads the confinement of a thread of this process, by its thread id.
///
/// # Errors
/// No such thread, or no `/proc`.
pub fn look(thread: i32) -> io::Result<Confinement> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/status"))?;
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let missing = || io::Error::other("the status of the thread in /proc lacks CapEff");
    let capabilities =
        value("CapEff:").and_then(|text| u64::from_str_radix(text, 16).ok()).ok_or_else(missing)?;
    Ok(Confinement {
        capabilities,
        no_new_privileges: value("NoNewPrivs:") == Some("1"),
        is_filtered: value("Seccomp:") == Some("2"),
    })
}
