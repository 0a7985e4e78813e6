//! Descriptors that the daemon may have.
//!
//! Systems start programs with 1,024, for the sake of those that use `select`. A client of the interface takes one, and so do the
//! sockets, maps and rings of ports; those that are full refuse clients, files and ports alike.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// As many as are of use.
const ENOUGH: u64 = 65_536;

/// Lets this process have as many as it needs, so far as the system allows.
pub fn allow() {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    if soft < ENOUGH && soft < hard {
        // Where it is refused, fewer clients come in.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard.min(ENOUGH), hard);
    }
}
