//! Huge pages for the daemon's own memory.
//!
//! When a process is killed, Linux frees its memory before it closes its descriptors. Only then do packets
//! reach the kernel. Tables of 100,000 routes take some 100 MB. Freeing them in pages of 4 KiB takes 10 to 20
//! ms longer than in huge pages. The C library uses huge pages only if an environment variable requests them
//! at the start of the process.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

const VARIABLE: &str = "GLIBC_TUNABLES";
const TUNABLE: &str = "glibc.malloc.hugetlb";

/// Executes this program again in the same process, with the C library set to transparent huge pages. Returns
/// only if the setting is already active, or if the execution fails.
pub fn prefer() {
    let present = env::var(VARIABLE).unwrap_or_default();
    if present.contains(TUNABLE) {
        // `exec` of /proc/self/exe has named the process `exe`. Name it `millrace` again; a failure only
        // leaves the name `exe`.
        let _ = nix::sys::prctl::set_name(c"millrace");
        return;
    }
    let wish = format!("{TUNABLE}=1");
    let value = if present.is_empty() { wish } else { format!("{present}:{wish}") };
    let mut arguments = env::args_os();
    let name = arguments.next().unwrap_or_else(|| "millrace".into());
    // `exec` returns only on failure. The daemon then continues with small pages.
    let _ = Command::new("/proc/self/exe").arg0(name).args(arguments).env(VARIABLE, value).exec();
}
