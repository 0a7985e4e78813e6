//! Handle to a worker: sends commands and questions to it, and waits for answers.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{Ordering, fence};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use millrace_pipeline::thread::Wake;
use millrace_pipeline::{Command, Event, PrincipalLoads, ReplyTo, WorkerLink};
use rtrb::PushError;

use crate::ControlError;
use crate::workers::watchdog::WorkerThread;

/// Maximum time to wait for an answer. A worker answers between two batches, usually within microseconds;
/// only a hanging worker takes longer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum time to wait for an answer of a worker that did not answer the last question.
const RENEWED_PATIENCE: Duration = Duration::from_secs(1);

/// Answer of a worker to a question that it also carries out late.
#[derive(Debug)]
pub(crate) enum Answer<T> {
    /// Answer in time.
    Given(T),
    /// Channel of the answer of a worker that did not answer in time.
    Late(Receiver<T>),
}

/// Worker on a thread of its own.
#[derive(Debug)]
pub(crate) struct WorkerHandle {
    /// Number of the worker, counted from 0.
    number: usize,
    link: WorkerLink,
    wake: Wake,
    seen: WorkerThread,
    /// Whether the worker did not answer the last question.
    is_silent: Cell<bool>,
    /// Commands that found no room in the ring, in their order.
    unsent: VecDeque<Command>,
}

impl WorkerHandle {
    pub fn new(number: usize, link: WorkerLink, wake: Wake, seen: WorkerThread) -> Self {
        Self { number, link, wake, seen, is_silent: Cell::new(false), unsent: VecDeque::new() }
    }

    pub fn watched(&self) -> WorkerThread {
        self.seen.clone()
    }

    /// Returns the work of the principals at the worker.
    pub fn loads(&self) -> &PrincipalLoads {
        &self.link.loads
    }

    /// Whether the worker's thread has ended. A thread that has ended carries out no further command.
    pub fn has_ended(&self) -> bool {
        self.link.ended.load(Ordering::SeqCst)
    }

    /// Sends a command to the worker. Waits while the command ring is full. A command that finds no room in time stays in
    /// order, and later calls send it: so the worker carries out each command, in the order of calls, when it resumes.
    ///
    /// # Errors
    /// [`ControlError::Silent`] if the ring stayed full: the worker gets the command later. Any other error: the worker
    /// has ended.
    pub fn tell(&mut self, command: impl Into<Command>) -> Result<(), ControlError> {
        if self.has_ended() {
            return Err(ended());
        }
        let patience = if self.unsent.is_empty() { PATIENCE } else { RENEWED_PATIENCE };
        self.unsent.push_back(command.into());
        let end = Instant::now() + patience;
        while !self.send_on() {
            if self.has_ended() {
                return Err(ended());
            }
            if Instant::now() >= end {
                return Err(self.silent());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // A worker that ends empties its command ring for the last time. This command may have come after that, so the
        // worker must be checked again.
        fence(Ordering::SeqCst);
        if self.has_ended() { Err(ended()) } else { Ok(()) }
    }

    /// Sends the commands on that found no room in the ring. Returns whether none is left.
    fn send_on(&mut self) -> bool {
        if self.unsent.is_empty() {
            return true;
        }
        while let Some(command) = self.unsent.pop_front() {
            if let Err(PushError::Full(back)) = self.link.commands.push(command) {
                self.unsent.push_front(back);
                break;
            }
        }
        self.wake.signal();
        self.unsent.is_empty()
    }

    /// Asks the worker a question, and waits for the answer.
    pub fn ask<T, C: Into<Command>>(
        &mut self,
        question: impl FnOnce(ReplyTo<T>) -> C,
    ) -> Result<T, ControlError> {
        let answer = self.begin(question)?;
        self.finish(&answer).map_err(|error| if self.has_ended() { ended() } else { error })
    }

    /// Asks the worker a question without waiting. [`finish`](Self::finish) waits for the answer.
    pub fn begin<T, C: Into<Command>>(
        &mut self,
        question: impl FnOnce(ReplyTo<T>) -> C,
    ) -> Result<Receiver<T>, ControlError> {
        let (reply, answer) = sync_channel(1);
        self.tell(question(reply))?;
        Ok(answer)
    }

    /// Waits for the answer to an earlier question.
    pub fn finish<T>(&self, answer: &Receiver<T>) -> Result<T, ControlError> {
        let patience = if self.is_silent.get() { RENEWED_PATIENCE } else { PATIENCE };
        let answered = answer.recv_timeout(patience);
        self.is_silent.set(answered.is_err());
        answered.map_err(|_| self.silent())
    }

    /// Asks the worker a question without waiting. A worker whose command ring stays full gets the question later.
    /// [`wait_for`](Self::wait_for) waits for the answer.
    ///
    /// # Errors
    /// The worker has ended.
    pub fn pose<T, C: Into<Command>>(
        &mut self,
        question: impl FnOnce(ReplyTo<T>) -> C,
    ) -> Result<Receiver<T>, ControlError> {
        let (reply, answer) = sync_channel(1);
        match self.tell(question(reply)) {
            Ok(()) | Err(ControlError::Silent(_)) => Ok(answer),
            Err(error) => Err(error),
        }
    }

    /// Waits for the answer to a posed question, which may come late.
    ///
    /// # Errors
    /// The worker has ended.
    pub fn wait_for<T>(&self, answer: Receiver<T>) -> Result<Answer<T>, ControlError> {
        match self.finish(&answer) {
            Ok(given) => Ok(Answer::Given(given)),
            Err(_) if self.has_ended() => Err(ended()),
            Err(_) => Ok(Answer::Late(answer)),
        }
    }

    fn silent(&self) -> ControlError {
        let (number, seconds) = (self.number, PATIENCE.as_secs());
        ControlError::Silent(format!("worker {number} did not answer within {seconds} s"))
    }

    /// Returns the next event that the worker reported; `None` if there is none. Sends the commands on that found no
    /// room.
    pub fn next_event(&mut self) -> Option<Event> {
        self.send_on();
        self.link.events.pop().ok()
    }
}

#[cfg(test)]
pub(crate) mod silence;
#[cfg(test)]
pub(crate) mod tests;

/// Returns the error of a worker whose thread has ended.
pub(crate) fn ended() -> ControlError {
    ControlError::System("a worker of the data plane has ended".to_owned())
}
