//! Tests of the command ring of a worker that takes no commands.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rtrb::{Consumer, RingBuffer};

use super::*;
use crate::workers::Workers;

/// Returns a worker whose command ring has room for one command, and the other end of the ring.
fn worker(number: usize) -> (WorkerHandle, Consumer<Command>) {
    let (commands, taken) = RingBuffer::new(1);
    let (_, events) = RingBuffer::new(1);
    let (pulse, loads, ended) = (Arc::default(), Arc::default(), Arc::new(AtomicBool::new(false)));
    let seen = WorkerThread { pulse: Arc::clone(&pulse), thread: nix::unistd::gettid() };
    let link = WorkerLink { commands, events, pulse, loads, ended };
    (WorkerHandle::new(number, link, Wake::new().unwrap(), seen), taken)
}

/// Returns a worker whose thread answers commands with `answer` until the handle ends.
pub(crate) fn answering(number: usize, answer: impl Fn(Command) + Send + 'static) -> WorkerHandle {
    let (worker, mut taken) = worker(number);
    std::thread::spawn(move || {
        while !taken.is_abandoned() {
            match taken.pop() {
                Ok(command) => answer(command),
                Err(_) => std::thread::sleep(std::time::Duration::from_millis(1)),
            }
        }
    });
    worker
}

/// Returns a worker whose thread does `work` with the first command, and then ends. `work` sets its second argument when
/// the worker has ended.
pub(crate) fn ending(
    number: usize,
    work: impl FnOnce(Command, &AtomicBool) + Send + 'static,
) -> WorkerHandle {
    let (worker, mut taken) = worker(number);
    let ended = Arc::clone(&worker.link.ended);
    std::thread::spawn(move || {
        let command = loop {
            match taken.pop() {
                Ok(command) => break command,
                Err(_) => std::thread::sleep(std::time::Duration::from_millis(1)),
            }
        };
        work(command, &ended);
    });
    worker
}

/// Returns the number of a barrier command, by the answer that it sends.
fn answers(command: Command, answers: &[Receiver<()>]) -> Option<usize> {
    let Command::Barrier(reply) = command else { panic!("no barrier") };
    reply.send(()).unwrap();
    answers.iter().position(|answer| answer.try_recv().is_ok())
}

#[test]
fn commands_that_find_a_full_ring_reach_the_worker_later_and_in_order() {
    let (mut worker, mut taken) = worker(0);
    let (replies, answered): (Vec<_>, Vec<_>) = (0..3).map(|_| sync_channel(1)).unzip();
    let told: Vec<_> = replies.into_iter().map(|reply| worker.tell(Command::Barrier(reply))).collect();
    assert!(matches!(&told[..], [Ok(()), Err(ControlError::Silent(_)), Err(ControlError::Silent(_))]));
    let late = worker.pose(Command::Barrier).unwrap();
    for number in 0..3 {
        assert_eq!(answers(taken.pop().unwrap(), &answered), Some(number));
        assert!(worker.next_event().is_none());
    }
    assert_eq!(answers(taken.pop().unwrap(), &[late]), Some(0));
    assert!(taken.pop().is_err());
    assert!(worker.tell(Command::Stop).is_ok() && matches!(taken.pop(), Ok(Command::Stop)));
}

#[test]
fn command_for_all_workers_reaches_those_behind_a_full_ring() {
    let (first, mut first_taken) = worker(0);
    let (second, mut second_taken) = worker(1);
    let mut workers = Workers::new(vec![first, second], 1);
    workers.get(0).tell(Command::Stop).unwrap();
    assert!(matches!(workers.tell(|| Command::Stop), Err(ControlError::Silent(_))));
    assert!(matches!(second_taken.pop(), Ok(Command::Stop)));
    assert!(first_taken.pop().is_ok() && workers.next_event().is_none());
    assert!(matches!(first_taken.pop(), Ok(Command::Stop)));
    // A question as well.
    workers.get(0).tell(Command::Stop).unwrap();
    assert!(matches!(workers.barrier(), Err(ControlError::Silent(_))));
    assert!(matches!(second_taken.pop(), Ok(Command::Barrier(_))));
}
