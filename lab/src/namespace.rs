//! Network namespaces, by name as in `ip netns`.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use nix::sched::{CloneFlags, setns};

use crate::error::LabError;

/// Returns the path of the file that stands for a namespace.
pub(crate) fn path(namespace: &str) -> PathBuf {
    Path::new("/run/netns").join(namespace)
}

/// Runs `work` on a new thread in a namespace. Processes and threads that `work` starts run in the namespace,
/// too; existing threads stay where they are.
///
/// # Errors
/// The namespace doesn't exist, or the caller is not root.
pub fn within<T: Send>(namespace: &str, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
    let path = path(namespace);
    let file = File::open(&path).map_err(LabError::file("open", &path))?;
    let inside = || -> io::Result<T> {
        setns(&file, CloneFlags::CLONE_NEWNET)?;
        Ok(work())
    };
    let result = thread::scope(|scope| scope.spawn(inside).join());
    match result {
        Ok(result) => result.map_err(LabError::system(format!("enter namespace {namespace}"))),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Writes values below `/proc/sys/net` in a namespace. Skips keys that the kernel lacks, such as IPv6 keys in
/// a kernel without IPv6.
pub(crate) fn set_sysctls(namespace: &str, values: &[(&str, &str)]) -> Result<(), LabError> {
    within(namespace, || values.iter().try_for_each(|(key, value)| set_sysctl(key, value)))?
}

fn set_sysctl(key: &str, value: &str) -> Result<(), LabError> {
    let path = Path::new("/proc/sys/net").join(key);
    match fs::write(&path, value) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.map_err(LabError::file("write", &path)),
    }
}
