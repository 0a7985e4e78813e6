//! Keeper: the thread that starts, watches and ends all plugin processes.
//!
//! The kernel kills a process with a parent-death signal when the thread that started the process ends. This thread
//! lives as long as the process, and no longer than the router. So the processes end with the router.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use millrace_confine::{ConfineError, Privileges};
use millrace_plugin::process::{Keeper, Link, Order, ProcessPlugin, Seat};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::groups::{ProcessGroup, ProcessGroups};
use crate::process::{ChildCommand, Process};

/// Instance of a plugin that needs a process.
#[derive(Debug)]
struct Kept {
    seat: Arc<Seat>,
    plugin: ProcessPlugin,
    process: Option<Process>,
    /// Number of the start in progress.
    starting: Option<u64>,
    groups: ProcessGroups,
    /// Group that the process has joined.
    joined: Option<Arc<ProcessGroup>>,
    /// How many times longer than usual the process may take.
    patience: u32,
}

/// Result of a start.
#[derive(Debug)]
struct Started {
    seat: Arc<Seat>,
    number: u64,
    result: io::Result<(Process, Link)>,
}

/// State that the keeper shares with other threads.
#[derive(Debug)]
struct Inbox {
    new: Mutex<Vec<Kept>>,
    started: Mutex<Vec<Started>>,
    wake: Arc<EventFd>,
}

impl Inbox {
    fn wake(&self) {
        // An error means that the counter is at its maximum: the keeper is about to wake up anyway.
        let _ = self.wake.write(1);
    }

    fn put<T>(&self, list: &Mutex<Vec<T>>, item: T) {
        list.lock().unwrap_or_else(PoisonError::into_inner).push(item);
        self.wake();
    }
}

fn take<T>(list: &Mutex<Vec<T>>) -> Vec<T> {
    std::mem::take(&mut *list.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Handle on the thread that keeps the plugin processes. Clones share the thread.
#[derive(Clone, Debug)]
pub struct ProcessKeeper {
    inbox: Arc<Inbox>,
    groups: ProcessGroups,
}

impl ProcessKeeper {
    /// Starts the keeper of a router, unless it has started. The caller needs the privileges of
    /// [`Privileges::Namespaces`], and the right to start programs.
    ///
    /// # Errors
    /// The system refuses a thread, or the thread can't be confined.
    pub fn of_router() -> Result<Self, ConfineError> {
        static KEEPER: OnceLock<ProcessKeeper> = OnceLock::new();
        match KEEPER.get() {
            Some(keeper) => Ok(keeper.clone()),
            // If another thread was faster, this keeper stays without work.
            None => Self::start(ChildCommand::own()).map(|keeper| KEEPER.get_or_init(|| keeper).clone()),
        }
    }

    /// Starts a keeper whose processes run `command`.
    ///
    /// # Errors
    /// As for [`of_router`](Self::of_router).
    pub fn start(command: ChildCommand) -> Result<Self, ConfineError> {
        const STEP: &str = "start the keeper of plugin processes";
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = Arc::new(EventFd::from_flags(flags).map_err(ConfineError::of(STEP))?);
        let inbox = Arc::new(Inbox { new: Mutex::default(), started: Mutex::default(), wake });
        let (own, thread) = (inbox.clone(), std::thread::Builder::new().name("processes".to_owned()));
        let begin = || thread.spawn(move || keep(&own, &command));
        Privileges::Namespaces.apart(begin)?.map_err(ConfineError::of(STEP))?;
        Ok(Self { inbox, groups: ProcessGroups::default() })
    }

    /// Returns a handle whose processes belong to `groups`.
    #[must_use]
    pub fn in_groups(&self, groups: &ProcessGroups) -> Self {
        groups.wake_by(&self.inbox.wake);
        Self { inbox: self.inbox.clone(), groups: groups.clone() }
    }
}

impl Keeper for ProcessKeeper {
    fn seat(&self, plugin: &ProcessPlugin) -> Result<Arc<Seat>, String> {
        let (inbox, groups) = (self.inbox.clone(), self.groups.clone());
        let seat = Arc::new(Seat::new(move || inbox.wake()));
        let kept = Kept {
            seat: seat.clone(),
            plugin: plugin.clone(),
            process: None,
            starting: None,
            groups,
            joined: None,
            patience: 1,
        };
        self.inbox.put(&self.inbox.new, kept);
        Ok(seat)
    }
}

/// Main function of the keeper.
fn keep(inbox: &Arc<Inbox>, command: &ChildCommand) {
    let mut all = Vec::<Kept>::new();
    let start = |kept: &mut Kept| kept.start(command, inbox);
    loop {
        let ready = wait(inbox, &all, command.start);
        for (kept, is_ready) in all.iter_mut().zip(ready) {
            if is_ready && kept.has_ended() {
                start(kept);
            }
            kept.end_late(command.start);
        }
        all.retain_mut(|kept| match kept.seat.take_order() {
            Some(Order::Retire) => false,
            Some(Order::Replace(number)) => {
                if kept.is_to_replace(number) {
                    start(kept);
                }
                true
            }
            None => true,
        });
        for started in take(&inbox.started) {
            // Without its instance, the process ends.
            if let Some(kept) = all.iter_mut().find(|kept| Arc::ptr_eq(&kept.seat, &started.seat)) {
                kept.take(started);
            }
        }
        all.iter_mut().for_each(Kept::follow_groups);
        all.extend(take(&inbox.new).into_iter().map(|mut kept| {
            start(&mut kept);
            kept
        }));
    }
}

/// Returns the number of the user of the next process.
fn next_user() -> u32 {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    // Begin at different users in different routers.
    std::process::id().wrapping_mul(256).wrapping_add(STARTED.fetch_add(1, Ordering::Relaxed))
}

/// Waits for an order, for an event of a process, or until a process has not become ready in time. Returns a flag per
/// instance.
fn wait(inbox: &Inbox, all: &[Kept], most: Duration) -> Vec<bool> {
    let left = all.iter().filter_map(|kept| kept.time_left(most)).min();
    // A late wake-up ends the process a little later.
    let left = left.map(|left| PollTimeout::try_from(left + Duration::from_millis(1)));
    let timeout = left.map_or(PollTimeout::NONE, |left| left.unwrap_or(PollTimeout::MAX));
    let mut waited = vec![PollFd::new(inbox.wake.as_fd(), PollFlags::POLLIN)];
    let mut places = Vec::new();
    for (place, kept) in all.iter().enumerate() {
        if let Some(process) = &kept.process
            && let Some(file) = process.file()
        {
            // Without POLLIN, poll reports only the end of the pipe.
            let events = if process.is_heard() { PollFlags::POLLIN } else { PollFlags::empty() };
            waited.push(PollFd::new(file, events));
            places.push(place);
        }
    }
    let mut ready = vec![false; all.len()];
    match poll(&mut waited, timeout) {
        Ok(_) => {
            for (place, file) in places.into_iter().zip(waited.iter().skip(1)) {
                if let Some(ready) = ready.get_mut(place) {
                    *ready = file.any().unwrap_or(true);
                }
            }
        }
        Err(Errno::EINTR) => {}
        Err(error) => tracing::error!("can't wait for plugin processes: {error}"),
    }
    let _ = inbox.wake.read();
    ready
}

impl Kept {
    /// Begins the start of a process.
    fn start(&mut self, command: &ChildCommand, inbox: &Arc<Inbox>) {
        let number = self.seat.begin_start();
        self.starting = Some(number);
        let (seat, own) = (self.seat.clone(), inbox.clone());
        let report = move |result| own.put(&own.started, Started { seat, number, result });
        if let Err(error) = Process::start(command, &self.plugin, (number, next_user()), report) {
            self.take(Started { seat: self.seat.clone(), number, result: Err(error) });
        }
    }

    /// Takes over a process that was started, and passes it to the worker. One that nobody wants any more ends.
    fn take(&mut self, Started { number, result, .. }: Started) {
        if self.starting.take_if(|starting| *starting == number).is_none() {
            return;
        }
        let started = result.map(|(process, link)| {
            (self.process, self.joined) = (Some(process), None);
            self.follow_groups();
            link
        });
        self.seat.give(number, started.map_err(|error| format!("can't start its process: {error}")));
    }

    /// Moves the process to the control group to which it belongs now.
    fn follow_groups(&mut self) {
        if let Some(process) = &self.process {
            let name = &self.plugin.manifest().name;
            self.patience = self.groups.follow(name, process.id(), &mut self.joined);
            process.tie.set_patience(self.patience);
        }
    }

    /// Reads the errors of the process. If it has ended, reports that. Returns whether another one must start:
    /// a process that has never been ready would fail again.
    fn has_ended(&mut self) -> bool {
        let Some(process) = &mut self.process else { return false };
        if process.is_heard() && !process.listen() {
            return false;
        }
        let was_ready = process.tie.is_ready();
        self.process = None;
        was_ready
    }

    /// Returns the time left until the process must be ready, if it isn't. `most`: maximum time of a start without
    /// limited processor time.
    fn time_left(&self, most: Duration) -> Option<Duration> {
        let process = self.process.as_ref().filter(|process| !process.tie.is_ready())?;
        Some(most.saturating_mul(self.patience).saturating_sub(process.since.elapsed()))
    }

    /// Ends a process that was not ready in time. It may still load its object, with the rights for that.
    fn end_late(&mut self, most: Duration) {
        if self.time_left(most).is_some_and(|left| left.is_zero())
            && let Some(process) = self.process.take()
        {
            let most = most.saturating_mul(self.patience).as_secs_f64();
            process.end(format!("its process was not ready after {most} s"));
        }
    }

    /// Ends the process that the worker no longer wants. Returns whether another one must start: not if it has
    /// started already.
    fn is_to_replace(&mut self, number: u64) -> bool {
        if self.starting.is_some() || self.process.as_ref().is_some_and(|process| process.number != number) {
            return false;
        }
        self.process = None;
        true
    }
}
