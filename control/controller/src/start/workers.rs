//! Starts the worker threads.

use std::hash::{BuildHasher, Hasher};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::thread::JoinHandle;

use millrace_config::{Config, PollMode};
use millrace_confine::Privileges;
use millrace_forward::FibReader;
use millrace_packet::Pool;
use millrace_pipeline::thread::{IoMode, Wake};
use millrace_pipeline::{Command, HandoverRings, NoHost, Worker, WorkerLink};
use millrace_principals::{ThreadSettings, keep_off};
use nix::unistd::{Pid, gettid};

use crate::ControlError;
use crate::workers::Workers;
use crate::workers::handle::WorkerHandle;
use crate::workers::placement::{processors, thread_settings};
use crate::workers::route_table::RouteTable;
use crate::workers::watchdog::WorkerThread;
use crate::workers::worker_panic::{WorkerPanic, run_worker};

pub(super) type Threads = Vec<JoinHandle<()>>;

pub(super) fn start_workers(
    config: &Config,
    route_table: &RouteTable,
    control_wake: &Wake,
) -> Result<(Workers, Threads, Receiver<WorkerPanic>), ControlError> {
    keep_off(&processors(&config.router)).map_err(ControlError::refused)?;
    let failed = |error| ControlError::system("make an event descriptor", error);
    let count = config.router.workers.max(1);
    let wakes: Vec<Wake> = (0..count).map(|_| Wake::new()).collect::<Result<_, _>>().map_err(failed)?;
    let ways: Vec<Option<HandoverRings>> = match count {
        1 => vec![None],
        _ => {
            let sleepers: Vec<_> = wakes.iter().cloned().map(Some).collect();
            HandoverRings::mesh(&sleepers).into_iter().map(Some).collect()
        }
    };
    // All workers have the same seed, so they agree on each flow's owner and next hop.
    let seed = std::hash::RandomState::new().build_hasher().finish();
    let (mut workers, mut threads) = (Vec::new(), Vec::new());
    let (panic_sender, panics) = channel();
    for (number, (wake, handover)) in wakes.into_iter().zip(ways).enumerate() {
        let prefixes = route_table.reader();
        let thread = thread_settings(&config.router, number);
        let making = Making { frames: config.router.frames, prefixes, seed, handover, thread };
        let wakes = (wake, control_wake.clone());
        let started = start_worker(number, making, io_mode(config.router.mode), wakes, panic_sender.clone());
        match started {
            Ok((worker, thread)) => {
                workers.push(worker);
                threads.push(thread);
            }
            Err(error) => {
                // The caller gets this error. A failure to stop the other workers is ignored.
                let _ = Workers::new(workers, seed).tell(|| Command::Stop);
                threads.into_iter().for_each(|thread| drop(thread.join()));
                return Err(error);
            }
        }
    }
    Ok((Workers::new(workers, seed), threads, panics))
}

/// Parts from which a worker is created on its own thread.
struct Making {
    frames: u32,
    prefixes: FibReader,
    seed: u64,
    handover: Option<HandoverRings>,
    thread: ThreadSettings,
}

/// Starts the thread of a worker. The thread goes to its processor, drops its privileges, and maps its own
/// packet memory.
fn start_worker(
    number: usize,
    making: Making,
    mode: IoMode,
    (wake, control): (Wake, Wake),
    panics: Sender<WorkerPanic>,
) -> Result<(WorkerHandle, JoinHandle<()>), ControlError> {
    let (sender, receiver) = sync_channel::<Result<(WorkerLink, Pid), ControlError>>(1);
    let worker_wake = wake.clone();
    let make = move || {
        making.thread.apply(Pid::from_raw(0)).map_err(ControlError::refused)?;
        let confined = Privileges::Memory.leave_to_thread();
        confined.map_err(ControlError::refused)?;
        make_worker(making)
    };
    let body = move || match make() {
        Ok((mut worker, link)) => {
            if sender.send(Ok((link, gettid()))).is_ok() {
                run_worker(number, &mut worker, mode, (&worker_wake, &control), &panics);
            }
        }
        Err(error) => {
            // If the caller no longer waits, the error is dropped.
            let _ = sender.send(Err(error));
        }
    };
    let thread = std::thread::Builder::new()
        .name(format!("worker-{number}"))
        .spawn(body)
        .map_err(|error| ControlError::system("start a worker's thread", error))?;
    let (link, thread_number) =
        receiver.recv().map_err(|error| ControlError::system("start a worker", error))??;
    let seen = WorkerThread { pulse: link.pulse.clone(), thread: thread_number };
    Ok((WorkerHandle::new(number, link, wake, seen), thread))
}

fn make_worker(making: Making) -> Result<(Worker, WorkerLink), ControlError> {
    let pool = Pool::new(making.frames).map_err(ControlError::refused)?;
    let (mut worker, link) = Worker::new(pool, making.prefixes, Box::new(NoHost), making.seed)
        .map_err(|error| ControlError::system("make the flow table", error))?;
    if let Some(handover) = making.handover {
        worker.join(handover);
    }
    Ok((worker, link))
}

fn io_mode(mode: PollMode) -> IoMode {
    match mode {
        PollMode::Poll => IoMode::Poll,
        PollMode::Interrupt => IoMode::Interrupt,
        PollMode::Adaptive => IoMode::Adaptive,
    }
}
