//! Crash handler: records the instance of a shared object whose call crashed the process. The next start puts
//! this instance into quarantine. The process still dies, and can leave a core dump.
//!
//! The signal handler writes the record. Everything is prepared in advance: the text of the record, the open
//! file, and the pulses of the workers. The handler reads the pulse of its thread, adds the time, writes the
//! record, and restores the earlier action of the signal. The WebAssembly engine installs its handlers later,
//! and these handle traps of modules first.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, RawFd};
use std::path::{Path, PathBuf};
use std::ptr::null;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use millrace_repository::{CrashLine, crash_file};
use millrace_units::InstanceId;

use crate::ControlError;
use crate::workers::watchdog::WorkerThread;

/// Signals of memory errors, invalid instructions, arithmetic errors and aborts.
const SIGNALS: [c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT];

/// Prepared crash record of an instance.
struct Record {
    line: CrashLine,
    said: String,
    file: Option<RawFd>,
}

/// Worker threads, and prepared records of the instances that can crash.
struct Known {
    workers: Vec<WorkerThread>,
    instances: Vec<(InstanceId, Record)>,
}

/// Workers and records that the signal handler uses. Replacing them frees the old value, unless the process
/// is dying.
static KNOWN: AtomicPtr<Known> = AtomicPtr::new(std::ptr::null_mut());
static DYING: AtomicBool = AtomicBool::new(false);
/// Earlier signal actions, in the order of [`SIGNALS`].
static EARLIER: OnceLock<[libc::sigaction; SIGNALS.len()]> = OnceLock::new();
/// Directory and file of crash records; `None` until the handlers are installed.
static PLACE: Mutex<Option<Place>> = Mutex::new(None);

thread_local! {
    /// Record of the instance that this thread is creating; null while it creates none.
    static BEGINS: Cell<*const Record> = const { Cell::new(null()) };
}

#[derive(Default)]
struct Place {
    directory: Option<PathBuf>,
    /// Crash file, opened for the first instance of a shared object.
    file: Option<File>,
}

impl Place {
    /// Returns the crash file, and opens it at the first call. Logs an error if that fails.
    fn file(&mut self) -> Option<RawFd> {
        if let (Some(directory), None) = (&self.directory, &self.file) {
            let opened = crash_file(directory);
            let told = |error| {
                tracing::error!(
                    "can't open the crash file, so an instance that crashes the router is not put into quarantine: {error}"
                );
            };
            self.file = opened.map_err(told).ok();
        }
        self.file.as_ref().map(File::as_raw_fd)
    }
}

fn place() -> MutexGuard<'static, Option<Place>> {
    PLACE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Record {
    fn of(instance: &str, plugin: &str, place: &mut Place) -> Self {
        let after = match place.directory {
            Some(_) => {
                format!("the instance stays in quarantine until `millrace instance release {instance}`")
            }
            None => "the quarantine is not stored, because [plugins] state is \"none\"".to_owned(),
        };
        let said = format!(
            "millrace: a call of instance {instance:?} (plugin {plugin}) crashed: the router ends; {after}\n"
        );
        Self { line: CrashLine::of(instance, plugin), said, file: place.file() }
    }

    /// Writes the crash message to standard error and the record to the crash file. Only the signal handler
    /// calls it.
    fn write(&self, signal: c_int) {
        put(libc::STDERR_FILENO, self.said.as_bytes());
        let Some(file) = self.file else { return };
        let CrashLine { before_signal, before_time, end } = &self.line;
        let (mut digits, mut more) = ([0; 20], [0; 20]);
        put(file, before_signal.as_bytes());
        put(file, decimal(signal.unsigned_abs().into(), &mut digits));
        put(file, before_time.as_bytes());
        put(file, decimal(now(), &mut more));
        put(file, end.as_bytes());
    }
}

/// Installs the crash handlers. Writes crash records to `directory`, or none if it is `None`. Must be called
/// before any other handler for these signals is installed.
pub(crate) fn watch(directory: Option<&Path>) -> Result<(), ControlError> {
    *place() = Some(Place { directory: directory.map(Path::to_owned), file: None });
    if EARLIER.get().is_some() {
        return Ok(());
    }
    // SAFETY: all bytes zero are a valid `sigaction`: the default action.
    let mut earlier: [libc::sigaction; SIGNALS.len()] = unsafe { MaybeUninit::zeroed().assume_init() };
    for (signal, earlier) in SIGNALS.into_iter().zip(&mut earlier) {
        // SAFETY: the call only writes the current action into `earlier`.
        nix::errno::Errno::result(unsafe { libc::sigaction(signal, null(), earlier) }).map_err(refused)?;
    }
    // The handler needs the earlier actions, so they are stored before it is installed.
    let _ = EARLIER.set(earlier);
    // SAFETY: all bytes zero are a valid `sigaction`: the default action.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = handle as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) as usize;
    // A thread whose stack is exhausted can handle the signal only on its alternate signal stack.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    for signal in SIGNALS {
        // SAFETY: the handler calls only async-signal-safe functions.
        let set = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
        nix::errno::Errno::result(set).map_err(refused)?;
    }
    Ok(())
}

fn refused(error: nix::errno::Errno) -> ControlError {
    ControlError::system("install the handlers of crash signals", error)
}

/// Publishes the worker threads, and the instances of shared objects, to the crash handler.
pub(crate) fn tell<'a>(
    workers: Vec<WorkerThread>,
    instances: impl Iterator<Item = (InstanceId, &'a str, &'static str)>,
) {
    let mut place = place();
    let Some(place) = place.as_mut() else { return };
    let instances = instances.map(|(id, name, plugin)| (id, Record::of(name, plugin, place))).collect();
    let known = Box::into_raw(Box::new(Known { workers, instances }));
    let old = KNOWN.swap(known, Ordering::SeqCst);
    // The handler sets `DYING` before it reads `KNOWN`. If `DYING` is unset here, no handler holds the old
    // records.
    if !old.is_null() && !DYING.load(Ordering::SeqCst) {
        // SAFETY: `into_raw` made the pointer, and no handler reads it any more.
        drop(unsafe { Box::from_raw(old) });
    }
}

/// Runs `begin`, which creates an instance of a shared object. If this thread crashes meanwhile, the handler
/// records this instance.
pub(crate) fn beginning<R>(instance: &str, plugin: &str, begin: impl FnOnce() -> R) -> R {
    let record = place().as_mut().map(|place| Record::of(instance, plugin, place));
    /// Guard that restores the earlier record when it is dropped, even if `begin` panics.
    struct Earlier(*const Record);
    impl Drop for Earlier {
        fn drop(&mut self) {
            BEGINS.set(self.0);
        }
    }
    let _earlier = Earlier(BEGINS.replace(record.as_ref().map_or(null(), std::ptr::from_ref)));
    begin()
}

/// Handles a crash signal.
extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // Only the first crash is recorded, even if several threads crash, or if the handler itself crashes.
    if !DYING.swap(true, Ordering::SeqCst) {
        // SAFETY: the running call of `beginning` on this thread keeps the record alive.
        if let Some(record) = unsafe { BEGINS.get().as_ref() } {
            record.write(signal);
        // SAFETY: `tell` frees the old record only if no handler has set `DYING`.
        } else if let Some(known) = unsafe { KNOWN.load(Ordering::SeqCst).as_ref() }
            && let Some(record) = known.calling()
        {
            record.write(signal);
        }
    }
    let earlier = EARLIER.get().zip(SIGNALS.iter().position(|known| *known == signal));
    if let Some((actions, place)) = earlier {
        // SAFETY: the restored action was in force before. A faulting instruction faults again after the
        // handler returns.
        unsafe { libc::sigaction(signal, &raw const actions[place], std::ptr::null_mut()) };
    }
    // SAFETY: the kernel passes a valid `siginfo_t` or null. A signal sent by a process does not repeat by
    // itself.
    if unsafe { info.as_ref() }.is_none_or(|info| info.si_code <= 0) {
        // SAFETY: `raise` sends a signal to this thread, which receives it when the handler returns.
        unsafe { libc::raise(signal) };
    }
}

impl Known {
    /// Returns the record of the instance whose call is running on this thread; `None` if none is running.
    fn calling(&self) -> Option<&Record> {
        // SAFETY: `gettid` only returns a number.
        let thread = unsafe { libc::gettid() };
        let worker = self.workers.iter().find(|worker| worker.thread.as_raw() == thread)?;
        let calling = worker.pulse.calling()?.instance;
        self.instances.iter().find(|(id, _)| *id == calling).map(|(_, record)| record)
    }
}

/// Returns seconds since 1970.
fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes only to `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time) };
    time.tv_sec.unsigned_abs()
}

/// Writes bytes to a file. Stops silently if the file takes no more.
fn put(file: RawFd, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        // SAFETY: `bytes` has this many readable bytes.
        let written = unsafe { libc::write(file, bytes.as_ptr().cast(), bytes.len()) };
        let Some(rest) = usize::try_from(written).ok().filter(|n| *n > 0).and_then(|n| bytes.get(n..)) else {
            return;
        };
        bytes = rest;
    }
}

/// Returns the decimal digits of a number.
fn decimal(mut number: u64, room: &mut [u8; 20]) -> &[u8] {
    let mut start = room.len();
    loop {
        start -= 1;
        room[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &room[start..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_digits() {
        for number in [0, 7, 10, 1_700_000_000, u64::MAX] {
            assert_eq!(decimal(number, &mut [0; 20]), number.to_string().as_bytes());
        }
    }

    #[test]
    fn the_thread_that_begins_an_instance_is_known_only_meanwhile() {
        *place() = Some(Place::default());
        assert!(beginning("a", "p", || !BEGINS.get().is_null()));
        assert!(BEGINS.get().is_null());
        *place() = None;
        assert!(beginning("a", "p", || BEGINS.get().is_null()));
    }

    #[test]
    fn worker_is_identified_by_its_thread_and_its_call() {
        let worker = WorkerThread { pulse: std::sync::Arc::default(), thread: nix::unistd::gettid() };
        let record = Record::of("a", "p", &mut Place::default());
        let known = Known { workers: vec![worker], instances: vec![(InstanceId(3), record)] };
        assert!(known.calling().is_none(), "no call goes on");
        assert!(known.instances[0].1.said.contains("\"a\" (plugin p) crashed"));
    }
}
