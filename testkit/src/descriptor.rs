//! File descriptors of other processes.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use nix::sys::socket::{setsockopt, sockopt::RcvBuf};

/// Duplicates a descriptor of another process (pidfd_getfd(2)).
fn descriptor_of(pid: i32, number: i32) -> io::Result<OwnedFd> {
    let opened = |result: libc::c_long| match result {
        // SAFETY: the kernel has just opened this descriptor for this process, so no other code owns it. A
        // descriptor fits an `i32`.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(result as i32) }),
        _ => Err(io::Error::last_os_error()),
    };
    // SAFETY: the call takes only numbers.
    let process = opened(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: the call takes only numbers.
    opened(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) })
}

/// Sets the receive buffers of a process's netlink sockets to the minimum. Only concerns route sockets that
/// listen to multicast groups. Returns the number of these sockets.
///
/// # Panics
/// The process can't be inspected.
pub fn shrink_netlink_buffers(pid: i32) -> usize {
    let table =
        fs::read_to_string(format!("/proc/{pid}/net/netlink")).expect("the process's netlink sockets");
    let listening = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_route =
            fields.get(1) == Some(&"0") && fields.get(3).is_some_and(|groups| *groups != "00000000");
        is_route.then(|| format!("socket:[{}]", fields.last().unwrap_or(&"")))
    };
    let sockets: Vec<String> = table.lines().filter_map(listening).collect();
    let mut count = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).expect("the process's descriptors").flatten() {
        let target = fs::read_link(entry.path()).unwrap_or_default();
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(number) =
            number.filter(|_| sockets.iter().any(|socket| *socket == target.to_string_lossy()))
        {
            let socket = descriptor_of(pid, number).expect("a descriptor of the process");
            setsockopt(&socket, RcvBuf, &1).expect("a small buffer");
            count += 1;
        }
    }
    count
}
