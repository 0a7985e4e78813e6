//! Looking at what a thread has given away.

use std::io;

/// What the kernel says of a thread of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confinement {
    /// The capabilities that it may use, a bit each.
    pub capabilities: u64,
    /// Whether programs that it starts get no more privileges than it has.
    pub no_new_privileges: bool,
    /// Whether its system calls are filtered.
    pub is_filtered: bool,
}

impl Confinement {
    /// Whether nothing is left to give away.
    pub fn is_complete(self) -> bool {
        self.capabilities == 0 && self.no_new_privileges && self.is_filtered
    }
}

/// Looks at a thread of this process, by its number.
///
/// # Errors
/// When there is none, or `/proc` is not there.
pub fn look(thread: i32) -> io::Result<Confinement> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/status"))?;
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let missing = || io::Error::other("its status lacks a line");
    let capabilities =
        value("CapEff:").and_then(|text| u64::from_str_radix(text, 16).ok()).ok_or_else(missing)?;
    Ok(Confinement {
        capabilities,
        no_new_privileges: value("NoNewPrivs:") == Some("1"),
        is_filtered: value("Seccomp:") == Some("2"),
    })
}
