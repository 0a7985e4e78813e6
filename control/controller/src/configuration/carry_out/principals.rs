//! Makes changes of principals: their groups, shares, payers and queues.

use millrace_config::{Change, Principal};

use super::BINDINGS_TOGETHER;
use crate::ControlError;
use crate::error::Steps;
use crate::filters::bindings::bind_again;
use crate::model::principals::Owners;
use crate::principals::after;
use crate::router::Inner;

impl Inner {
    /// Adds, changes or removes a principal.
    pub(super) fn change_principals(&mut self, change: &Change) -> Result<(), ControlError> {
        let wanted = after(&self.model.principals, change);
        let before = self.model.principals.clone();
        self.model.schedulers.number_principals(&wanted)?;
        let released = match change {
            Change::ReleasePrincipal(principal) => Some(&*principal.name),
            _ => None,
        };
        self.set_principals(wanted, &before, released).inspect_err(|error| {
            // A worker that doesn't answer still makes the change when it resumes.
            if !error.is_failure() {
                restore(self, before.clone());
            }
        })
    }

    /// Replaces all principals, `before` until now: their groups, shares, payers and queues. Packets in the queues of
    /// the principal `released` are dropped.
    fn set_principals(
        &mut self,
        wanted: Vec<Principal>,
        before: &[Principal],
        released: Option<&str>,
    ) -> Result<(), ControlError> {
        self.principals.follow(&wanted, &self.model.router)?;
        follow(self, wanted, before, released)
    }
}

/// Sets the principals to those before a change that failed. What can't be undone is logged: the error of the change
/// counts.
fn restore(inner: &mut Inner, before: Vec<Principal>) {
    let wanted = inner.model.principals.clone();
    let groups = inner.principals.follow(&before, &inner.model.router);
    let rest = follow(inner, before, &wanted, None);
    for error in [groups.err(), rest.err()].into_iter().flatten() {
        tracing::warn!("a change of principals was not undone as a whole: {error}");
    }
}

/// Replaces all principals as `set_principals` does, after their groups.
fn follow(
    inner: &mut Inner,
    wanted: Vec<Principal>,
    before: &[Principal],
    released: Option<&str>,
) -> Result<(), ControlError> {
    inner.principals.place_threads(&inner.workers, inner.model.router.worker_policy);
    inner.model.principal_ids.follow(&wanted);
    inner.model.principals = wanted;
    let mut steps = Steps::default();
    steps.note(inner.tell_shares())?;
    let all = &inner.model.principals;
    let is_moved = |one: &&Principal| Principal::payer(all, &one.name) != Principal::payer(before, &one.name);
    let owners = Owners(&inner.model);
    let named = |one: &Principal| [owners.bindings_of(&one.name), owners.filters_of(&one.name)].concat();
    let moved = all.iter().filter(is_moved).flat_map(named);
    let again: Vec<Change> = moved.flat_map(|id| bind_again(&inner.model, id)).collect();
    for group in again.chunks(BINDINGS_TOGETHER) {
        steps.note(inner.change_bindings(group).1)?;
    }
    steps.note(inner.follow_links(before, released))?;
    let queues = inner.principals.queues_of_packets(&inner.model);
    steps.note(inner.devices.set_host_outputs(&inner.model, &queues, &mut inner.workers))?;
    steps.end()
}
