//! Schedulers of ports at the workers: changes while packets are queued, and views.

pub(crate) mod node_changes;
pub(crate) mod node_removal;
pub(crate) mod queueing;
pub(crate) mod queues;
pub(crate) mod view;

use millrace_pipeline::{Piece, ScheduleChange, SchedulerCommand};
use millrace_units::PortId;

use crate::ControlError;
use crate::model::Model;
use crate::ports::devices::Devices;
use crate::workers::{Workers, owner_of};

/// Maximum number of scheduler changes that a worker makes between two batches.
const CHANGES_AT_ONCE: usize = 64;

/// Splits a list of changes into parts that fit between two batches of the worker. An empty list results in
/// one empty part.
fn pieces(changes: Vec<ScheduleChange>) -> impl Iterator<Item = (Piece, Vec<ScheduleChange>)> {
    let (mut left, mut begins) = (changes.into_iter(), true);
    std::iter::from_fn(move || {
        let changes: Vec<_> = left.by_ref().take(CHANGES_AT_ONCE).collect();
        let piece = Piece { begins, ends: left.len() == 0 };
        (begins || !changes.is_empty()).then(|| {
            begins = false;
            (piece, changes)
        })
    })
}

/// Sends changes of a port's scheduler to the worker that owns the port's device, in several commands. Waits
/// for all answers.
pub(crate) fn schedule(
    port: PortId,
    changes: Vec<ScheduleChange>,
    devices: &mut Devices,
    model: &Model,
    workers: &mut Workers,
) -> Result<(), ControlError> {
    devices.tell_scheduler(port, model, workers)?;
    let worker = owner_of(port, model, workers)?;
    // All commands are sent before the first answer is awaited. So even a worker that answers too late makes
    // all changes.
    let mut tell =
        |(piece, changes)| worker.begin(|reply| SchedulerCommand::Change(port, changes, piece, reply));
    let asked: Vec<_> = pieces(changes).map(&mut tell).collect::<Result<_, _>>()?;
    for answer in asked {
        worker.finish(&answer)?.map_err(|error| model.schedulers.refusal(error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
