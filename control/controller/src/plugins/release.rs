//! Release of instances from quarantine at the workers. A worker that doesn't answer in time releases the instance when
//! it resumes. Until then, control remembers the release.

use std::sync::mpsc::{Receiver, TryRecvError};

use millrace_pipeline::PluginCommand;
use millrace_plugin::{Inheritance, Succession, Successor, Successors};
use millrace_units::InstanceId;

use crate::ControlError;
use crate::model::Model;
use crate::observe::Observation;
use crate::plugins::upgrade::{give, states_of, succession};
use crate::workers::Workers;
use crate::workers::handle::Answer;

/// Worker that has not yet released an instance, and the channel of its answer.
type Late = (usize, Receiver<Option<Succession>>);

/// Releases that some workers have not carried out yet.
#[derive(Default)]
pub(crate) struct LateReleases(Vec<(InstanceId, Vec<Late>)>);

impl LateReleases {
    /// Replaces an instance in quarantine by new ones of the state version `version`, at all workers at the same time.
    /// A worker that doesn't answer in time replaces it when it resumes.
    ///
    /// `connections`: maximum number of connections of each worker.
    ///
    /// # Errors
    /// A worker has ended, or doesn't have the instance, or the kernel has no memory for its states.
    pub fn begin(
        &mut self,
        workers: &mut Workers,
        successors: Successors,
        version: u32,
        connections: u32,
    ) -> Result<(), ControlError> {
        let (id, inheritance) = (successors.id, Inheritance::Renounced);
        let states = successors.instances.iter().map(|contexts| states_of(id, contexts, connections));
        for (worker, states) in states.collect::<Result<Vec<_>, _>>()?.into_iter().enumerate() {
            give(workers.get(worker), states)?;
        }
        let mut instances = successors.instances.into_iter();
        let answers = workers.ask_with_late(|_, reply| {
            let contexts = instances.next().unwrap_or_default();
            let successor = Successor::new(contexts, inheritance, version, true);
            PluginCommand::Replace(id, successor, reply)
        })?;
        let mut late = Vec::new();
        for (worker, answer) in answers.into_iter().enumerate() {
            match answer {
                // The old copies end here.
                Answer::Given(answer) => succession(answer).map(drop)?,
                Answer::Late(receiver) => late.push((worker, receiver)),
            }
        }
        if !late.is_empty() {
            self.0.push((id, late));
        }
        Ok(())
    }

    /// Takes the answers that have come since. Notes an event for each instance that all workers have released now.
    pub fn follow(&mut self, model: &Model, observation: &Observation) {
        self.0.retain_mut(|(id, late)| {
            late.retain(|(_, answer)| matches!(answer.try_recv(), Err(TryRecvError::Empty)));
            if late.is_empty() {
                observation.note_release(true, model.plugins.instance_name(*id));
            }
            !late.is_empty()
        });
    }

    /// Checks that all workers have released an instance.
    ///
    /// # Errors
    /// [`ControlError::Silent`] names the first worker that hasn't.
    pub fn check(&self, id: InstanceId, name: &str) -> Result<(), ControlError> {
        let mut late = self.0.iter().filter(|(other, _)| *other == id).flat_map(|(_, late)| late);
        late.next().map_or(Ok(()), |(worker, _)| {
            Err(ControlError::Silent(format!(
                "instance {name:?}: worker {worker} has not answered: it releases the instance when it answers again; the workers \
                 that answered have released it"
            )))
        })
    }

    /// Forgets a freed instance.
    pub fn forget(&mut self, id: InstanceId) {
        self.0.retain(|(other, _)| *other != id);
    }
}
