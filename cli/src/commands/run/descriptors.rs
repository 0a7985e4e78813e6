//! Limit of file descriptors of the daemon.
//!
//! Systems start programs with a limit of 1,024, for the sake of `select`. Each API client takes a
//! descriptor, and so do the sockets, maps and rings of ports. At the limit, the daemon could open no more
//! clients, files and ports.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Number of file descriptors that suffices for any router.
const ENOUGH: u64 = 65_536;

/// Raises the limit of this process to [`ENOUGH`], as far as the system allows.
pub fn allow() {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    if soft < ENOUGH && soft < hard {
        // If this fails, fewer clients can connect.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard.min(ENOUGH), hard);
    }
}
