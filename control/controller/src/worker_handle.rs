//! Control's handle on a worker: commands with their answers.

use std::sync::atomic::{Ordering, fence};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use millrace_pipeline::thread::Wake;
use millrace_pipeline::{Command, Event, ReplyTo, WorkerLink};

use crate::ControlError;
use crate::watchdog::WorkerThread;

/// How long a worker may take to answer. It answers between two batches, so within microseconds unless it hangs.
const PATIENCE: Duration = Duration::from_secs(5);

/// A worker that runs on a thread of its own.
#[derive(Debug)]
pub(crate) struct WorkerHandle {
    link: WorkerLink,
    wake: Wake,
    seen: WorkerThread,
}

impl WorkerHandle {
    pub fn new(link: WorkerLink, wake: Wake, seen: WorkerThread) -> Self {
        Self { link, wake, seen }
    }

    /// The worker's thread, for who watches it.
    pub fn watched(&self) -> WorkerThread {
        self.seen.clone()
    }

    /// Whether the worker's thread has ended: nobody takes its commands any more.
    pub fn has_ended(&self) -> bool {
        self.link.ended.load(Ordering::SeqCst)
    }

    /// Tells the worker something. Waits while its ring of commands is full.
    pub fn tell(&mut self, command: impl Into<Command>) -> Result<(), ControlError> {
        let mut command = command.into();
        if self.has_ended() {
            return Err(ended());
        }
        for _ in 0..PATIENCE.as_millis() {
            match self.link.commands.push(command) {
                Ok(()) => {
                    self.wake.signal();
                    // A worker that ended takes commands out of its ring once: this one may have come too late for that.
                    fence(Ordering::SeqCst);
                    return if self.has_ended() { Err(ended()) } else { Ok(()) };
                }
                Err(rtrb::PushError::Full(back)) => command = back,
            }
            if self.has_ended() {
                return Err(ended());
            }
            self.wake.signal();
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(silent())
    }

    /// Asks the worker something.
    pub fn ask<T, C: Into<Command>>(
        &mut self,
        question: impl FnOnce(ReplyTo<T>) -> C,
    ) -> Result<T, ControlError> {
        let answer = self.begin(question)?;
        Self::finish(answer).map_err(|error| if self.has_ended() { ended() } else { error })
    }

    /// Asks the worker something; [`finish`](Self::finish) waits for the answer.
    pub fn begin<T, C: Into<Command>>(
        &mut self,
        question: impl FnOnce(ReplyTo<T>) -> C,
    ) -> Result<Receiver<T>, ControlError> {
        let (reply, answer) = sync_channel(1);
        self.tell(question(reply))?;
        Ok(answer)
    }

    /// The answer to what was asked before.
    pub fn finish<T>(answer: Receiver<T>) -> Result<T, ControlError> {
        answer.recv_timeout(PATIENCE).map_err(|_| silent())
    }

    /// The next thing that the worker said by itself.
    pub fn next_event(&mut self) -> Option<Event> {
        self.link.events.pop().ok()
    }
}

#[cfg(test)]
pub(crate) mod silence;

fn silent() -> ControlError {
    ControlError::Silent(format!("the data plane did not answer within {} s", PATIENCE.as_secs()))
}

/// A worker whose thread has ended.
pub(crate) fn ended() -> ControlError {
    ControlError::System("a worker of the data plane has ended".to_owned())
}
