//! Panics of workers: records a panic, and ends the worker's thread.
//!
//! The panic hook records message, location and backtrace, but not yet the function names of the backtrace,
//! because resolving them takes long. The worker first closes its devices, so that the kernel forwards at
//! once. Then control gets the record, and writes the capture.

use std::backtrace::Backtrace;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::Once;
use std::sync::mpsc::Sender;

use millrace_pipeline::thread::{self, IoMode, Wake};
use millrace_pipeline::{PostMortem, Worker};

/// Record of a panic, made by the panic hook.
#[derive(Debug)]
pub(crate) struct PanicNote {
    pub message: String,
    /// File, line and column of the panic; empty if unknown.
    pub location: String,
    pub backtrace: Backtrace,
}

/// Worker that has panicked.
#[derive(Debug)]
pub(crate) struct WorkerPanic {
    pub worker: usize,
    pub note: PanicNote,
    /// State that the worker left.
    pub post_mortem: PostMortem,
}

thread_local! {
    /// Whether panics of this thread are recorded, and the panic recorded so far.
    static NOTED: RefCell<Noted> = const { RefCell::new(Noted { watched: false, note: None }) };
}

struct Noted {
    watched: bool,
    note: Option<PanicNote>,
}

/// Installs the panic hook that records worker panics. Only the first call has an effect.
fn install_hook() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let usual = std::panic::take_hook();
        let is_set = |name| std::env::var_os(name).is_some_and(|value| value != "0");
        let prints_backtraces = is_set("RUST_BACKTRACE");
        std::panic::set_hook(Box::new(move |panic| {
            // Printing a backtrace takes hundreds of milliseconds, during which the worker would still hold
            // its devices.
            if !(note(panic) && prints_backtraces) {
                usual(panic);
            }
        }));
    });
}

/// Records a panic, if panics of this thread are to be recorded and this is the first one. Returns whether
/// the panic was recorded.
fn note(panic: &PanicHookInfo<'_>) -> bool {
    // Two panics are not recorded: one that occurs while another is being recorded, and one while the
    // thread's storage is destroyed.
    let noted = NOTED.try_with(|noted| {
        let Ok(mut noted) = noted.try_borrow_mut() else { return false };
        let is_first = noted.watched && noted.note.is_none();
        if is_first {
            noted.note = Some(PanicNote {
                message: panic.payload_as_str().unwrap_or("panic without a text").to_owned(),
                location: panic.location().map(ToString::to_string).unwrap_or_default(),
                backtrace: Backtrace::force_capture(),
            });
        }
        is_first
    });
    noted.unwrap_or(false)
}

/// Runs a closure. Returns the record of a panic in it as the error.
pub(crate) fn catch<R>(run: impl FnOnce() -> R) -> Result<R, PanicNote> {
    install_hook();
    NOTED.with_borrow_mut(|noted| *noted = Noted { watched: true, note: None });
    let ran = catch_unwind(AssertUnwindSafe(run));
    let note = NOTED.with_borrow_mut(|noted| {
        noted.watched = false;
        noted.note.take()
    });
    let unnoted = || PanicNote {
        message: "panic without a record".to_owned(),
        location: String::new(),
        backtrace: Backtrace::disabled(),
    };
    ran.map_err(|_| note.unwrap_or_else(unnoted))
}

/// Runs a worker on this thread until the stop command or a panic. Signals `control` at the end.
pub(crate) fn run_worker(
    number: usize,
    worker: &mut Worker,
    mode: IoMode,
    (wake, control): (&Wake, &Wake),
    panics: &Sender<WorkerPanic>,
) {
    if let Err(note) = catch(|| thread::run(worker, mode, wake, control)) {
        // From here on the kernel forwards the packets of ports with `on-death = "kernel"`.
        let _ = catch(|| worker.close_devices());
        let post_mortem = catch(|| worker.post_mortem()).unwrap_or_default();
        // If control has ended too, the record is dropped.
        let _ = panics.send(WorkerPanic { worker: number, note, post_mortem });
    }
    worker.end();
    control.signal();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_noted_with_message_and_place() {
        assert_eq!(catch(|| 7).unwrap(), 7);
        let note = catch(|| panic!("of {}", 3)).unwrap_err();
        assert_eq!(note.message, "of 3");
        assert!(note.location.contains("worker_panic.rs:"), "{}", note.location);
        assert_eq!(catch(|| 8).unwrap(), 8);
    }
}
