//! Changes of a port's scheduler, both in the model and at the worker.

use millrace_config::{Change, Fate, Fates, Heir, Principal, Scheduler, default_leaf};
use millrace_plugin::Action;
use millrace_units::PortId;

use super::Inner;
use crate::ControlError;
use crate::error::Steps;
use crate::model::principals::Owners;
use crate::model::schedulers::changes::Leftovers;
use crate::model::schedulers::links::{check_names, links, queue_name, with_links, without_links};
use crate::schedulers::queues::tell_reserved;
use crate::schedulers::schedule;
use crate::schedulers::view::{say_beyond_link, say_beyond_room};

impl Inner {
    /// Plans a change of a port's scheduler for a request. The rates that principals reserve must fit afterwards.
    pub fn plan_scheduler(
        &self,
        port: &str,
        change: impl FnOnce(&mut Scheduler) -> Result<(), ControlError>,
    ) -> Result<(Vec<Change>, PortId), ControlError> {
        let id = self.model.port(port)?.id;
        let from = self.model.schedulers.configured(id);
        let mut to = from.clone().unwrap_or_default();
        change(&mut to)?;
        Owners(&self.model).check_links_at(port, &to)?;
        let (from, to) = (from.map(Box::new), Some(Box::new(to)));
        let port = port.to_owned();
        Ok((vec![Change::SetScheduler { port, from, to, heir: Heir::Any }], id))
    }

    /// Gives the ports named by principals before or after a change of principals the queues of all principals.
    /// Packets of removed queues move to the default queue of their port, or are dropped if the queue is that of the
    /// principal `released`.
    ///
    /// # Errors
    /// A scheduler can't hold the queues, or a worker doesn't answer.
    pub fn follow_links(&mut self, before: &[Principal], released: Option<&str>) -> Result<(), ControlError> {
        let changed: Vec<_> = self
            .model
            .ports
            .iter()
            .filter_map(|plan| {
                let port = &*plan.config.name;
                let configured = self.model.schedulers.configured(plan.id)?;
                let (old, new) = (links(before, port), links(&self.model.principals, port));
                let differs = with_links(&configured, &old) != with_links(&configured, &new);
                differs.then(|| (port.to_owned(), default_leaf(&configured).map(str::to_owned)))
            })
            .collect();
        let queue = released.map(queue_name);
        let mut steps = Steps::default();
        for (port, default) in changed {
            let leftovers = Leftovers { to: default.as_deref(), released: queue.as_deref() };
            steps.note(self.change_scheduler(&port, leftovers, None))?;
        }
        steps.end()
    }

    /// Changes the scheduler of a port in the model, then at the worker; without a scheduler, only the queues of
    /// principals follow. After a refusal nothing has changed.
    pub fn change_scheduler(
        &mut self,
        port: &str,
        leftovers: Leftovers<'_>,
        configured: Option<&Scheduler>,
    ) -> Result<(), ControlError> {
        let id = self.model.port(port)?.id;
        let mut planned = self.model.schedulers.clone();
        let before = planned.of(id).cloned().unwrap_or_default();
        let configured = configured.cloned().unwrap_or_else(|| without_links(&before));
        check_names(&configured)?;
        let after = Owners(&self.model).with_links(port, &configured);
        let used = self.model.plugins.bindings_by_age().map(|(_, bound)| match bound.action {
            Action::Queue(queue) => queue,
            _ => bound.call_limits.link_queue,
        });
        planned.keep(used);
        match after.node.is_empty() {
            true => planned.remove(id),
            false => planned.plan(id, port, &after)?,
        }
        let mut changes = planned.changes(&before, &after, leftovers)?;
        // The new plan is stored first, because the text of a refusal may need the names of new nodes.
        let old = std::mem::replace(&mut self.model.schedulers, planned);
        let mut flows_before = before.flow.clone();
        let fates = Fates::of(&before, &after);
        // A leaf loses the settings of its flows when it is removed or changes its kind.
        flows_before
            .retain(|flow| matches!(fates.get(&flow.queue), Fate::Stays | Fate::Leaf { changes: false, .. }));
        let flows = self.model.flow_changes(port, &flows_before, &after.flow);
        changes.extend(flows.inspect_err(|_| self.model.schedulers = old.clone())?);
        let told = schedule(id, changes, &mut self.devices, &self.model, &mut self.workers);
        let told = told.inspect_err(|error| {
            // A worker that doesn't answer still makes the change when it resumes, so the new plan stays.
            if !error.is_failure() {
                self.model.schedulers = old;
            }
        });
        let mut steps = Steps::default();
        steps.note(told)?;
        self.queueing.begin_rates(port, &fates, &before, &after);
        steps.note(tell_reserved(&self.model, &mut self.workers))?;
        let queues = self.principals.queues_of_packets(&self.model);
        steps.note(self.devices.set_host_outputs(&self.model, &queues, &mut self.workers))?;
        say_beyond_link(id, &self.model, &self.devices, &self.kernel);
        say_beyond_room(id, &self.model, &mut self.workers);
        self.observation.note_reservations(port, &before, &after);
        self.queueing.remember_flows(&self.model, &before.flow, &after.flow);
        steps.end()
    }
}
