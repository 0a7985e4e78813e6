//! Keeper: the thread that starts, watches and ends all plugin processes.
//!
//! The kernel kills a process with a parent-death signal when the thread that started the process ends. The
//! keeper lives as long as the router, so the processes end with the router.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use millrace_confine::{ConfineError, Privileges};
use millrace_plugin::process::{Keeper, Order, ProcessPlugin, Seat};
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
    groups: ProcessGroups,
    /// Group that the process has joined.
    joined: Option<Arc<ProcessGroup>>,
}

/// State that the keeper shares with other threads.
#[derive(Debug)]
struct Inbox {
    new: Mutex<Vec<Kept>>,
    wake: Arc<EventFd>,
}

impl Inbox {
    fn wake(&self) {
        // An error means that the counter is at its maximum: the keeper is about to wake up anyway.
        let _ = self.wake.write(1);
    }
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
        let inbox = Arc::new(Inbox { new: Mutex::default(), wake });
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
        let kept = Kept { seat: seat.clone(), plugin: plugin.clone(), process: None, groups, joined: None };
        self.inbox.new.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
        self.inbox.wake();
        Ok(seat)
    }
}

/// Main function of the keeper.
fn keep(inbox: &Inbox, command: &ChildCommand) {
    let mut all = Vec::<Kept>::new();
    let start = |kept: &mut Kept| kept.start(command, next_user());
    loop {
        let ready = wait(inbox, &all);
        for (kept, is_ready) in all.iter_mut().zip(ready) {
            if is_ready && kept.has_ended() {
                start(kept);
            }
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
        all.iter_mut().for_each(Kept::follow_groups);
        let new = std::mem::take(&mut *inbox.new.lock().unwrap_or_else(PoisonError::into_inner));
        all.extend(new.into_iter().map(|mut kept| {
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

/// Waits for an order, or for an event of a process. Returns a flag per instance.
fn wait(inbox: &Inbox, all: &[Kept]) -> Vec<bool> {
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
    match poll(&mut waited, PollTimeout::NONE) {
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
    /// Starts a process, and passes it to the worker.
    fn start(&mut self, command: &ChildCommand, user: u32) {
        let number = self.seat.begin_start();
        let started = Process::start(command, &self.plugin, number, user);
        let started = started.map(|(process, link)| {
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
            process.tie.set_patience(self.groups.follow(name, process.id(), &mut self.joined));
        }
    }

    /// Reads the errors of the process. If it has ended, reports that. Returns whether another one must start:
    /// a process that has never been ready would fail again.
    fn has_ended(&mut self) -> bool {
        let Some(process) = &mut self.process else { return false };
        if process.is_heard() && !process.listen() {
            return false;
        }
        process.end();
        let was_ready = process.tie.is_ready();
        self.process = None;
        was_ready
    }

    /// Ends the process that the worker no longer wants. Returns whether another one must start: not if it has
    /// started already.
    fn is_to_replace(&mut self, number: u64) -> bool {
        match &mut self.process {
            Some(process) if process.number != number => false,
            Some(process) => {
                process.end();
                self.process = None;
                true
            }
            None => true,
        }
    }
}
