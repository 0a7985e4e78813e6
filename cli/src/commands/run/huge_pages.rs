//! Huge pages for the daemon's own memory.
//!
//! When a process is killed, Linux frees its memory before it closes its descriptors, and only then do packets find
//! their way to the kernel. Tables of 100,000 routes are some 100 MB; in pages of 4 KiB their end takes 10 to 20 ms
//! longer than in huge ones. The C library takes the wish from the environment at the start of a process alone.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

const VARIABLE: &str = "GLIBC_TUNABLES";
const TUNABLE: &str = "glibc.malloc.hugetlb";

/// Starts this program over, in this process, with the C library asking for transparent huge pages; returns if it was
/// started so already, or can't be.
pub fn prefer() {
    let present = env::var(VARIABLE).unwrap_or_default();
    if present.contains(TUNABLE) {
        // Else it goes by the name of the link that it was started over by. It may keep that.
        let _ = nix::sys::prctl::set_name(c"millrace");
        return;
    }
    let wish = format!("{TUNABLE}=1");
    let value = if present.is_empty() { wish } else { format!("{present}:{wish}") };
    let mut arguments = env::args_os();
    let name = arguments.next().unwrap_or_else(|| "millrace".into());
    // It returns only when it fails, and then small pages do as well.
    let _ = Command::new("/proc/self/exe").arg0(name).args(arguments).env(VARIABLE, value).exec();
}
