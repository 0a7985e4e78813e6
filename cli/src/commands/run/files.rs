//! File threads of control's runtime: they read and write untrusted files without privileges.

use std::time::Duration;

use millrace_confine::ConfineError;
use tokio::runtime::{Builder, Runtime};

use crate::output::Failure;

/// Idle time after which a file thread ends: ten years, so never in practice.
const FOR_GOOD: Duration = Duration::from_secs(10 * 365 * 86_400);
/// Pause between two attempts of a file thread to drop its privileges.
const AGAIN: Duration = Duration::from_secs(1);
/// Maximum number of attempts of a file thread to drop its privileges.
const TRIES: u32 = 10;

/// Creates the runtime of control. Its file threads call `confine` before they take work.
///
/// # Errors
/// A thread can't be confined, so the router must not start.
pub(super) fn runtime(
    confine: impl Fn() -> Result<(), ConfineError> + Clone + Send + Sync + 'static,
) -> Result<Runtime, Failure> {
    let tried = std::thread::scope(|scope| scope.spawn(&confine).join());
    let tried = tried.map_err(|_| Failure::new("a file thread panicked while it dropped its privileges"))?;
    tried.map_err(|error| Failure::new(format!("file threads can't drop their privileges: {error}")))?;
    Builder::new_current_thread()
        .enable_all()
        // The first file thread starts while memory is free, and never ends. If the system later refuses more
        // threads, this thread does their work.
        .thread_keep_alive(FOR_GOOD)
        .on_thread_start(move || confine_or_end(&confine))
        .build()
        .map_err(Failure::new)
}

/// Confines the calling thread before it takes work. Confinement succeeded at the start, so it can only fail
/// for lack of memory; the thread tries again. After [`TRIES`] failures the process ends, since work would
/// otherwise wait for this thread forever.
#[expect(
    clippy::disallowed_methods,
    reason = "a thread of the runtime can't return an exit code, and must not take work"
)]
fn confine_or_end(confine: &impl Fn() -> Result<(), ConfineError>) {
    for _ in 0..TRIES {
        match confine() {
            Ok(()) => return,
            Err(error) => {
                tracing::error!("a file thread can't drop its privileges, and tries again: {error}")
            }
        }
        std::thread::sleep(AGAIN);
    }
    std::process::exit(1);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn start_ends_where_threads_for_files_keep_their_privileges() {
        let refuse = || Err(ConfineError::of("install the seccomp filter")("not permitted"));
        let failure = runtime(refuse).unwrap_err().json()["error"].to_string();
        assert!(failure.contains("privileges: can't install the seccomp filter"), "{failure}");
    }

    #[test]
    fn each_file_thread_is_confined_before_its_work() {
        let confined = Arc::new(AtomicUsize::new(0));
        let count = confined.clone();
        let confine = move || {
            count.fetch_add(1, Ordering::SeqCst);
            Ok(())
        };
        let runtime = runtime(confine).unwrap();
        let seen = runtime
            .block_on(async { tokio::task::spawn_blocking(move || confined.load(Ordering::SeqCst)).await });
        // `confine` was called twice: by `runtime` as a test on another thread, and by the file thread.
        assert_eq!(seen.unwrap(), 2);
    }
}
