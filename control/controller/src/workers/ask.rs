//! Questions to workers. The workers run on threads of their own, or when the caller asks.

use std::collections::BTreeSet;
use std::net::IpAddr;

use millrace_pipeline::{
    Command, CounterCommand, FilterCommand, NeighbourCommand, OffloadCommand, ReplyTo, RouteCommand,
};
use millrace_plugin::BindingId;
use millrace_units::{NextHopIndex, PortId};

use crate::ControlError;
use crate::show::Counts;

/// Maximum number of answers in which a worker reports its neighbours in use. It suffices for all neighbours,
/// unless some neighbours are used again during the report.
const MOST_PIECES: usize = 512;

/// Workers that carry out commands and answer questions.
pub(crate) trait Ask {
    fn len(&self) -> usize;

    /// Sends a command to all workers.
    fn tell<C: Into<Command>>(&mut self, command: impl Fn() -> C) -> Result<(), ControlError>;

    /// Asks a worker, and waits for its answer.
    fn ask_one<T, C: Into<Command>>(
        &mut self,
        worker: usize,
        question: impl FnOnce(ReplyTo<T>) -> C,
    ) -> Result<T, ControlError>;

    /// Asks all workers, and waits for their answers.
    fn ask<T, C: Into<Command>>(
        &mut self,
        question: impl Fn(ReplyTo<T>) -> C,
    ) -> Result<Vec<T>, ControlError>;

    /// Sets all counters to zero. There may be many routes and bindings, so several commands clear the
    /// counters of routes and bindings.
    fn clear_counters(&mut self) -> Result<(), ControlError> {
        for worker in 0..self.len() {
            // Workers read the counters of offloaded flows only four times a second. This extra reading
            // ensures that the cleared counters don't include earlier packets.
            let mut entry = Some(0);
            while let Some(from) = entry {
                entry = self.ask_one(worker, |reply| OffloadCommand::Account(from, reply))?;
            }
            let mut route = Some(NextHopIndex(0));
            while let Some(from) = route {
                route = self.ask_one(worker, |reply| RouteCommand::Clear(from, reply))?;
            }
            let mut binding = Some(BindingId(0));
            while let Some(from) = binding {
                binding = self.ask_one(worker, |reply| FilterCommand::Clear(from, reply))?;
            }
        }
        self.tell(|| CounterCommand::Clear)
    }

    /// Returns the counts of all bindings, summed over the workers.
    fn filter_counts(&mut self) -> Result<Counts, ControlError> {
        let mut sums = Counts::default();
        for worker in 0..self.len() {
            let mut from = Some(BindingId(0));
            while let Some(start) = from {
                let page = self.ask_one(worker, |reply| FilterCommand::Count(start, reply))?;
                from = page.next;
                sums.add(page);
            }
        }
        Ok(sums)
    }

    /// Returns the neighbours used since the last call. Each worker reports them in several answers, so that
    /// no answer delays packets.
    fn take_used_neighbours(&mut self) -> Result<BTreeSet<(PortId, IpAddr)>, ControlError> {
        let mut used = BTreeSet::new();
        for _ in 0..MOST_PIECES {
            let pieces = self.ask(NeighbourCommand::TakeUsed)?;
            let more = pieces.iter().any(|piece| piece.more);
            used.extend(pieces.into_iter().flat_map(|piece| piece.used));
            if !more {
                break;
            }
        }
        Ok(used)
    }
}
