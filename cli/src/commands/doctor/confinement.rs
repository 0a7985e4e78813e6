//! Confinement of the threads that serve clients: support by this system, and state in a running router.

use std::sync::mpsc::channel;

use millrace_confine::{Calls, Confinement, Privileges, confine_thread, look};
use serde_json::Value;

use super::system::Finding;
use crate::output::{plain, rows};

/// Checks whether a thread of this process can be confined.
pub(super) fn possible() -> Finding {
    match tried() {
        Ok(seen) if seen.is_complete() => {
            Ok("client threads drop all capabilities and most system calls (seccomp)".to_owned())
        }
        Ok(seen) => Err(format!("client threads keep privileges that they must drop: {seen:?}")),
        Err(why) => Err(format!("client threads can't be confined: {why}")),
    }
}

/// Checks that a file thread can't write kernel settings (`/proc`, `/sys`). File threads read and write files
/// for control. Root may write kernel settings even without capabilities.
pub(super) fn from_settings() -> Finding {
    // Opening the file changes nothing.
    let opened = || std::fs::OpenOptions::new().write(true).open("/proc/self/comm").is_ok();
    of_settings(Privileges::Files.apart(opened).map_err(|error| error.to_string()))
}

fn of_settings(writes: Result<bool, String>) -> Finding {
    let (good, bad) = (
        "file threads can't write /proc, /sys and /dev, and workers can't write any file (Landlock)",
        "file threads can write kernel settings as root, because this kernel has no Landlock: enable Landlock \
         (CONFIG_SECURITY_LANDLOCK, and landlock in lsm=), or run the service as another user",
    );
    match writes {
        Ok(false) => Ok(good.to_owned()),
        Ok(true) => Err(bad.to_owned()),
        Err(why) => Err(format!("file threads can't be confined: {why}")),
    }
}

/// Confines a test thread, and returns its remaining rights.
fn tried() -> Result<Confinement, String> {
    let (tell, told) = channel();
    let (end, ended) = channel::<()>();
    let thread = std::thread::spawn(move || {
        let confined = confine_thread(Calls::SERVING).map(|()| nix::unistd::gettid());
        // The confined thread can't read files. It waits here while the calling thread inspects it.
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
pub(super) fn of_running(status: &Value) -> Finding {
    of_threads(rows(&status["interface"]["threads"]))
}

fn of_threads(threads: &[Value]) -> Finding {
    let names =
        |meant: &[&Value]| meant.iter().map(|thread| plain(&thread["name"])).collect::<Vec<_>>().join(", ");
    let (confined, open): (Vec<&Value>, Vec<&Value>) =
        threads.iter().partition(|thread| thread["confined"] == true);
    match open.as_slice() {
        [] => Ok(format!(
            "threads of the running router without capabilities and with few system calls: {}",
            names(&confined)
        )),
        open => Err(format!("threads of the running router that are not confined: {}", names(open))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kernel_without_landlock_is_reported() {
        assert!(of_settings(Ok(true)).unwrap_err().contains("no Landlock"));
        assert!(of_settings(Ok(false)).is_ok());
        assert!(of_settings(Err("refused".to_owned())).unwrap_err().contains("refused"));
    }

    #[test]
    fn threads_that_are_not_confined_are_named() {
        let all = [
            json!({"name": "api-local", "confined": true}),
            json!({"name": "api-remote", "confined": false}),
        ];
        assert!(of_threads(&all).unwrap_err().contains("not confined: api-remote"));
        assert!(of_threads(&all[..1]).is_ok());
    }
}
