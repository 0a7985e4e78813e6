//! Access to the kernel's files: each value is read and written by one call.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use crate::error::GroupError;

/// Reads a file of the kernel, without the line break at its end.
///
/// # Errors
/// The file can't be read.
pub(crate) fn read(path: &Path) -> Result<String, GroupError> {
    let text = fs::read(path).map_err(GroupError::file("read", path))?;
    Ok(String::from_utf8_lossy(&text).trim_end().to_owned())
}

/// Reads a file of the kernel; `None` if it doesn't exist or can't be read.
pub(crate) fn read_if_present(path: &Path) -> Option<String> {
    read(path).ok()
}

/// Writes a value to an existing file of the kernel. Kernel files take a value by a single write.
///
/// # Errors
/// The kernel refuses the value, or the file doesn't exist.
pub(crate) fn write(path: &Path, value: &str) -> io::Result<()> {
    let written = OpenOptions::new().write(true).open(path)?.write(value.as_bytes())?;
    if written == value.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Returns the value of the line `KEY VALUE`.
pub(crate) fn keyed(text: &str, key: &str) -> Option<u64> {
    let value = |line: &str| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok();
    text.lines().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_compared_as_a_whole() {
        let text = "oom 1\noom_kill 7\noom_kill_disable 3\n";
        assert_eq!(keyed(text, "oom_kill"), Some(7));
        assert_eq!(keyed(text, "oom_group"), None);
        assert_eq!(keyed("oom_kill x\n", "oom_kill"), None);
    }

    #[test]
    fn writing_creates_no_file() {
        let path = std::env::temp_dir().join(format!("millrace-principals-absent-{}", std::process::id()));
        assert_eq!(write(&path, "1").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(!path.exists());
    }
}
