//! Confinement of the threads that serve clients: support by this system, and state in a running router.

use std::sync::mpsc::channel;

use millrace_confine::{Calls, Confinement, Privileges, confine_thread, look};
use serde_json::Value;

use super::system::Check;
use crate::output::{plain, rows};

const TOPIC: &str = "confinement";

/// Checks whether a thread of this process can be confined.
pub(super) fn possible() -> Check {
    match tried() {
        Ok(seen) if seen.is_complete() => {
            Check::new(TOPIC, true, "client threads drop all capabilities and most system calls (seccomp)")
        }
        Ok(seen) => {
            Check::new(TOPIC, false, format!("client threads keep privileges that they must drop: {seen:?}"))
        }
        Err(why) => Check::new(TOPIC, false, format!("client threads can't be confined: {why}")),
    }
}

/// Checks that a file thread can't write the kernel's settings, which root may write without any capability.
pub(super) fn from_settings() -> Check {
    // Opening the file changes nothing.
    let opened = || std::fs::OpenOptions::new().write(true).open("/proc/self/comm").is_ok();
    of_settings(Privileges::Files.apart(opened).map_err(|error| error.to_string()))
}

fn of_settings(writes: Result<bool, String>) -> Check {
    match writes {
        Ok(false) => Check::new(
            TOPIC,
            true,
            "file threads can't write /proc, /sys and /dev, and workers can't write any file (Landlock)",
        ),
        Ok(true) => Check::new(
            TOPIC,
            false,
            "file threads can write kernel settings as root, because this kernel has no Landlock: enable \
             Landlock (CONFIG_SECURITY_LANDLOCK, and landlock in lsm=), or run the service as another user",
        ),
        Err(why) => Check::new(TOPIC, false, format!("file threads can't be confined: {why}")),
    }
}

/// Returns the remaining rights of a confined thread.
fn tried() -> Result<Confinement, String> {
    let (tell, told) = channel();
    let (end, ended) = channel::<()>();
    let thread = std::thread::spawn(move || {
        let confined = confine_thread(Calls::SERVING).map(|()| nix::unistd::gettid());
        // The thread waits until another thread, which can still read files, has inspected it.
        let _ = tell.send(confined.map_err(|error| error.to_string()));
        let _ = ended.recv();
    });
    let confined = told.recv().map_err(|error| error.to_string()).and_then(|confined| confined);
    let seen = confined.and_then(|thread| look(thread.as_raw()).map_err(|error| error.to_string()));
    drop(end);
    let _ = thread.join();
    seen
}

/// Checks the threads of the running router, by its status.
pub(super) fn of_running(status: &Value) -> Check {
    of_threads(rows(&status["interface"]["threads"]))
}

fn of_threads(threads: &[Value]) -> Check {
    let names =
        |meant: &[&Value]| meant.iter().map(|thread| plain(&thread["name"])).collect::<Vec<_>>().join(", ");
    let (confined, open): (Vec<&Value>, Vec<&Value>) =
        threads.iter().partition(|thread| thread["confined"] == true);
    match open.as_slice() {
        [] => Check::new(
            "interface",
            true,
            format!(
                "threads of the running router without capabilities and with few system calls: {}",
                names(&confined)
            ),
        ),
        open => Check::new(
            "interface",
            false,
            format!("threads of the running router that are not confined: {}", names(open)),
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kernel_without_landlock_is_told() {
        let check = of_settings(Ok(true));
        assert!(!check.fine && check.text.contains("no Landlock"), "{check:?}");
        assert!(of_settings(Ok(false)).fine);
        let check = of_settings(Err("refused".to_owned()));
        assert!(!check.fine && check.text.contains("refused"), "{check:?}");
    }

    #[test]
    fn threads_that_are_not_confined_are_named() {
        let all = [
            json!({"name": "api-local", "confined": true}),
            json!({"name": "api-remote", "confined": false}),
        ];
        let check = of_threads(&all);
        assert!(!check.fine && check.text.contains("not confined: api-remote"), "{check:?}");
        assert!(of_threads(&all[..1]).fine);
    }
}
