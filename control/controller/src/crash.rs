//! Crashes in calls of shared objects: the process dies of them, as it should, and is able to leave its memory behind; but before
//! that it writes down whose call it was, so that the next start creates the instance in quarantine.
//!
//! A handler of signals does that. All that it needs is made beforehand: the line of each instance, the open file, and by which
//! words workers say whose code they run. It reads these, asks for the thread and the time, writes twice, and lets the signal
//! do what it would have done. It stands below the handlers of the engine of modules, which takes traps for its own.
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
use crate::watchdog::WorkerThread;

/// What a process dies of whose memory is wrong, or that gives up.
const SIGNALS: [c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT];

/// What is written for an instance.
struct Record {
    line: CrashLine,
    said: String,
    file: Option<RawFd>,
}

/// What is known of the calls that workers make.
struct Known {
    workers: Vec<WorkerThread>,
    instances: Vec<(InstanceId, Record)>,
}

/// Record of worker calls, read by the signal handler. A replacement frees the old record, unless the process is dying.
static KNOWN: AtomicPtr<Known> = AtomicPtr::new(std::ptr::null_mut());
static DYING: AtomicBool = AtomicBool::new(false);
/// What signals did before, in the order of [`SIGNALS`].
static EARLIER: OnceLock<[libc::sigaction; SIGNALS.len()]> = OnceLock::new();
/// Where crashes are written down, once the handlers are there.
static PLACE: Mutex<Option<Place>> = Mutex::new(None);

thread_local! {
    /// The instance that this thread begins.
    static BEGINS: Cell<*const Record> = const { Cell::new(null()) };
}

#[derive(Default)]
struct Place {
    directory: Option<PathBuf>,
    /// Open from the first instance on that can crash.
    file: Option<File>,
}

impl Place {
    /// The file, which is opened now if it isn't. That it can't be is told.
    fn file(&mut self) -> Option<RawFd> {
        if let (Some(directory), None) = (&self.directory, &self.file) {
            let opened = crash_file(directory);
            let told = |error| tracing::error!("crashes of shared objects will not be remembered: {error}");
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
            Some(_) => format!("it is in quarantine until `millrace instance release {instance}`"),
            None => "nothing remembers that, for [plugins] state is \"none\"".to_owned(),
        };
        let said = format!(
            "millrace: a call of instance {instance:?} (plugin {plugin}) crashed: the router ends; {after}\n"
        );
        Self { line: CrashLine::of(instance, plugin), said, file: place.file() }
    }

    /// Says who crashed, and writes it down. Called by the handler alone.
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

/// Has crashes written down from now on, in a directory if there is one. To be called before anything else handles these signals.
///
/// # Errors
/// When the system refuses a handler.
pub(crate) fn watch(directory: Option<&Path>) -> Result<(), ControlError> {
    *place() = Some(Place { directory: directory.map(Path::to_owned), file: None });
    if EARLIER.get().is_some() {
        return Ok(());
    }
    // SAFETY: all bytes zero are a valid `sigaction`: the default action.
    let mut earlier: [libc::sigaction; SIGNALS.len()] = unsafe { MaybeUninit::zeroed().assume_init() };
    for (signal, earlier) in SIGNALS.into_iter().zip(&mut earlier) {
        // SAFETY: it only writes what stands there now.
        nix::errno::Errno::result(unsafe { libc::sigaction(signal, null(), earlier) }).map_err(refused)?;
    }
    // Whoever crashes from here on finds these.
    let _ = EARLIER.set(earlier);
    // SAFETY: as above.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = handle as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) as usize;
    // Threads that have a stack for it need it where theirs is used up.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    for signal in SIGNALS {
        // SAFETY: the handler calls only functions that may be called by one.
        let set = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
        nix::errno::Errno::result(set).map_err(refused)?;
    }
    Ok(())
}

fn refused(error: nix::errno::Errno) -> ControlError {
    ControlError::system("handle the signals of crashes", error)
}

/// Says who calls instances, and which of them can crash, with the names of their plugins.
pub(crate) fn tell<'a>(
    workers: Vec<WorkerThread>,
    instances: impl Iterator<Item = (InstanceId, &'a str, &'static str)>,
) {
    let mut place = place();
    let Some(place) = place.as_mut() else { return };
    let instances = instances.map(|(id, name, plugin)| (id, Record::of(name, plugin, place))).collect();
    let known = Box::into_raw(Box::new(Known { workers, instances }));
    let old = KNOWN.swap(known, Ordering::SeqCst);
    // A handler says that it is there before it looks: it has the old one only if this sees that.
    if !old.is_null() && !DYING.load(Ordering::SeqCst) {
        // SAFETY: it was made by `into_raw`, and nobody reads it any more.
        drop(unsafe { Box::from_raw(old) });
    }
}

/// Begins an instance of a shared object.
pub(crate) fn beginning<R>(instance: &str, plugin: &str, begin: impl FnOnce() -> R) -> R {
    let record = place().as_mut().map(|place| Record::of(instance, plugin, place));
    /// Puts back what was there, also when `begin` panics.
    struct Earlier(*const Record);
    impl Drop for Earlier {
        fn drop(&mut self) {
            BEGINS.set(self.0);
        }
    }
    let _earlier = Earlier(BEGINS.replace(record.as_ref().map_or(null(), std::ptr::from_ref)));
    begin()
}

/// The handler.
extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // Of two threads that crash, or a crash in here, the first counts.
    if !DYING.swap(true, Ordering::SeqCst) {
        // SAFETY: the record is kept by the call of `beginning` that this thread is in.
        if let Some(record) = unsafe { BEGINS.get().as_ref() } {
            record.write(signal);
        // SAFETY: `tell` frees what stood there only if it has seen that nobody is here.
        } else if let Some(known) = unsafe { KNOWN.load(Ordering::SeqCst).as_ref() }
            && let Some(record) = known.calling()
        {
            record.write(signal);
        }
    }
    let earlier = EARLIER.get().zip(SIGNALS.iter().position(|known| *known == signal));
    if let Some((actions, place)) = earlier {
        // SAFETY: it stood there before. An instruction that failed fails again then.
        unsafe { libc::sigaction(signal, &raw const actions[place], std::ptr::null_mut()) };
    }
    // SAFETY: the kernel hands over what it knows. A signal that somebody sent doesn't come again by itself.
    if unsafe { info.as_ref() }.is_none_or(|info| info.si_code <= 0) {
        // SAFETY: it sends a signal to this thread, which gets it when the handler returns.
        unsafe { libc::raise(signal) };
    }
}

impl Known {
    /// The record of the instance whose call goes on at this thread.
    fn calling(&self) -> Option<&Record> {
        // SAFETY: it asks for a number.
        let thread = unsafe { libc::gettid() };
        let worker = self.workers.iter().find(|worker| worker.thread.as_raw() == thread)?;
        let calling = worker.pulse.calling()?.instance;
        self.instances.iter().find(|(id, _)| *id == calling).map(|(_, record)| record)
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes the time there.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time) };
    time.tv_sec.unsigned_abs()
}

/// Writes all bytes, or as many as there is room for.
fn put(file: RawFd, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        // SAFETY: so many bytes stand there.
        let written = unsafe { libc::write(file, bytes.as_ptr().cast(), bytes.len()) };
        let Some(rest) = usize::try_from(written).ok().filter(|n| *n > 0).and_then(|n| bytes.get(n..)) else {
            return;
        };
        bytes = rest;
    }
}

/// A number's digits.
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
    fn a_worker_is_known_by_its_thread_and_its_call() {
        let worker = WorkerThread { pulse: std::sync::Arc::default(), thread: nix::unistd::gettid() };
        let record = Record::of("a", "p", &mut Place::default());
        let known = Known { workers: vec![worker], instances: vec![(InstanceId(3), record)] };
        assert!(known.calling().is_none(), "no call goes on");
        assert!(known.instances[0].1.said.contains("\"a\" (plugin p) crashed"));
    }
}
