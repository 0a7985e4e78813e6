//! Kinds of operations: queries, changes and actions. The kind of an operation decides which parts of the
//! router the operation can reach.
//!
//! - A [`Query`] gets [`Reading`], which has no method that changes the router.
//! - A [`Change`] gets [`Changing`]. It reaches the configuration only while no transaction runs and no
//!   revision waits for confirmation. So a rollback never undoes a change of another operation.
//! - An [`Action`] gets [`Acting`], the whole router. Each action states why it has no inverse.

use std::ops::Deref;
use std::sync::MutexGuard;

use millrace_classify::CompiledSelection;
use millrace_config as config;
use millrace_config::Config;
use millrace_store::AuditLog;

use super::{Effect, Principal};
use crate::access::tokens::Tokens;
use crate::configuration::keep::Kept;
use crate::configuration::lists::Numbered;
use crate::events::Events;
use crate::filters::selection::ReadSelection;
use crate::plugins::load::Loaded;
use crate::request::NewPlugin;
use crate::router::{Inner, Router, Seen};
use crate::view::{DifferenceView, RevisionView, ShadowedView};
use crate::{ControlError, Wrong};

/// Kind of an operation.
pub trait Kind {
    /// Part of the router that operations of the kind can reach.
    type Access: Send + Sync;
    /// Effect of most operations of the kind.
    const EFFECT: Effect;
    /// Whether most operations of the kind allocate memory that stays in use after they end.
    const TAKES_MEMORY: bool;
    /// Whether the operations of the kind only read; `None` if only some do.
    const READS: Option<bool>;
    /// Whether the operations of the kind have an inverse, or need none.
    const HAS_INVERSE: bool = true;

    /// Returns the access of an admitted operation.
    fn access(reading: Reading) -> Self::Access;
}

/// Kind of operations that read: they leave configuration, plugins and packets as they are.
#[derive(Debug)]
pub enum Query {}

/// Kind of operations that change the running configuration. An inverse change can undo each of them.
#[derive(Debug)]
pub enum Change {}

/// Kind of operations without an inverse. Each states the reason in
/// [`NO_INVERSE`](super::Operation::NO_INVERSE).
#[derive(Debug)]
pub enum Action {}

impl Kind for Query {
    type Access = Reading;
    const EFFECT: Effect = Effect::Look;
    const TAKES_MEMORY: bool = false;
    const READS: Option<bool> = Some(true);

    fn access(reading: Reading) -> Reading {
        reading
    }
}

impl Kind for Change {
    type Access = Changing;
    const EFFECT: Effect = Effect::Forwarding;
    const TAKES_MEMORY: bool = true;
    const READS: Option<bool> = Some(false);

    fn access(reading: Reading) -> Changing {
        Changing(reading)
    }
}

impl Kind for Action {
    type Access = Acting;
    // An action that declares no effect of its own requires the role `admin`.
    const EFFECT: Effect = Effect::Access;
    const TAKES_MEMORY: bool = false;
    const READS: Option<bool> = None;
    const HAS_INVERSE: bool = false;

    fn access(reading: Reading) -> Acting {
        Acting(reading)
    }
}

/// Access of a query: the state of the router, without a way to change it.
#[derive(Clone, Debug)]
pub struct Reading {
    router: Router,
    caller: Principal,
}

impl Reading {
    /// Creates the access of a caller whose role suffices. Only [`Router::execute`] may give it to an
    /// operation.
    pub(super) fn new(router: &Router, caller: &Principal) -> Self {
        Self { router: router.clone(), caller: caller.clone() }
    }

    /// Returns the caller.
    pub(crate) fn caller(&self) -> &Principal {
        &self.caller
    }

    /// Locks the state for reading.
    pub(crate) fn lock(&self) -> ReadGuard<'_> {
        ReadGuard(self.router.lock())
    }

    /// Returns the event log.
    pub(crate) fn events(&self) -> &Events {
        self.router.events()
    }

    /// Returns the audit log.
    pub(crate) fn audit(&self) -> AuditLog {
        self.router.audit()
    }

    /// Returns the API tokens.
    pub(crate) fn tokens(&self) -> &Tokens {
        self.router.tokens()
    }

    /// Returns the running configuration. Fails while a transaction has made only some of its changes.
    pub(crate) fn whole_running(&self) -> Result<Config, ControlError> {
        self.router.whole_running()
    }

    /// Returns the running configuration, with the stored revisions.
    pub(crate) fn kept(&self) -> (Config, Kept) {
        (self.router.running(), Kept::of(&self.router))
    }

    /// Returns all stored revisions, the newest first.
    pub(crate) fn revisions(&self) -> Result<Vec<RevisionView>, ControlError> {
        self.router.revisions()
    }

    /// Returns the changes that a configuration text would make, as commands.
    pub(crate) async fn difference(&self, text: &str, origin: &str) -> Result<DifferenceView, ControlError> {
        self.router.difference(text, origin).await
    }

    /// Refuses a text whose `[plugins]`, `[[plugin]]` or `[api]` differs from the running configuration.
    pub(crate) async fn unless_privileged(&self, text: &str, origin: &str) -> Result<(), ControlError> {
        self.router.unless_privileged(text, origin).await
    }

    /// Returns the filters and bindings that never win, and whose numbers `is_meant` selects.
    pub(crate) async fn never_winning(&self, is_meant: impl Fn(u64) -> bool) -> Vec<ShadowedView> {
        self.router.never_winning(is_meant).await
    }

    /// Reads and checks the file of a running plugin for another runtime. No code of a shared object runs.
    pub(crate) async fn describe_plugin(&self, new: &NewPlugin, name: &str) -> Result<Loaded, ControlError> {
        self.router.describe_plugin(new, name).await
    }

    /// Parses and compiles the selection of a request. Both steps take milliseconds for 16 KiB of text, so
    /// only the look-up of port names holds the lock.
    ///
    /// # Errors
    /// Returns an error for an invalid filter or an unknown port name.
    pub(super) fn select(&self, text: Option<&str>) -> Result<Option<CompiledSelection>, ControlError> {
        let read = ReadSelection::read(text)?;
        let resolved = read.resolve(&self.lock().model)?;
        resolved.compile()
    }
}

/// Locked state of the router, for reading.
pub(crate) struct ReadGuard<'a>(MutexGuard<'a, Inner>);

impl ReadGuard<'_> {
    /// Returns the parts of the state that can ask the workers questions.
    pub fn seen(&mut self) -> Seen<'_> {
        self.0.seen()
    }
}

impl Deref for ReadGuard<'_> {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

/// Access of a change: the state of the router, while no transaction runs and no revision waits for
/// confirmation.
#[derive(Debug)]
pub struct Changing(Reading);

impl Deref for Changing {
    type Target = Reading;

    fn deref(&self) -> &Reading {
        &self.0
    }
}

impl Changing {
    /// Locks the state for a change that concerns control alone. A change that workers make, too, is a
    /// [`change`](Self::change): undone if one of them doesn't answer.
    ///
    /// # Errors
    /// Returns the errors of [`Router::to_change`].
    pub(crate) fn to_change(&self) -> Result<MutexGuard<'_, Inner>, ControlError> {
        self.router.to_change()
    }

    /// Makes planned changes as a transaction, as [`Router::change`] does.
    pub(crate) async fn change<P: Send + 'static, A: Send + 'static>(
        &self,
        plan: impl FnOnce(&mut Inner) -> Result<(Vec<config::Change>, P), ControlError> + Send + 'static,
        answer: impl FnOnce(&mut Inner, P) -> Result<A, ControlError> + Send + 'static,
    ) -> Result<A, ControlError> {
        self.router.change(plan, answer).await
    }

    /// Makes the changes of a list as a transaction, as [`Router::make_list`] does.
    pub(crate) async fn make_list<T: Send + 'static, U: Send + 'static, R: Send + 'static>(
        &self,
        entries: Vec<T>,
        read: fn(T) -> Result<U, ControlError>,
        try_all: impl FnOnce(&mut Inner, Numbered<U>, &mut Wrong) -> Vec<config::Change> + Send + 'static,
        done: fn(&Inner, &[config::Change]) -> R,
    ) -> Result<R, ControlError> {
        self.router.make_list(entries, read, try_all, done).await
    }

    /// Makes planned changes as a transaction, as [`Router::change_and_ask`] does.
    pub(crate) async fn change_and_ask<P, A, F>(
        &self,
        plan: impl FnOnce(&mut Inner) -> Result<(Vec<config::Change>, P), ControlError> + Send + 'static,
        answer: impl FnOnce(Reading, P) -> F + Send + 'static,
    ) -> Result<A, ControlError>
    where
        P: Send + 'static,
        A: Send + 'static,
        F: Future<Output = Result<A, ControlError>> + Send + 'static,
    {
        let reading = self.0.clone();
        self.router.change_and_ask(plan, |_, planned| answer(reading, planned)).await
    }

    /// Reads and compiles a plugin file, without adding the plugin to the router.
    pub(crate) async fn read_plugin(&self, new: &NewPlugin) -> Result<Loaded, ControlError> {
        self.router.read_plugin(new, None).await
    }
}

/// Access of an action: the whole router.
#[derive(Debug)]
pub struct Acting(Reading);

impl Deref for Acting {
    type Target = Reading;

    fn deref(&self) -> &Reading {
        &self.0
    }
}

impl Acting {
    /// Returns the router.
    pub(crate) fn router(&self) -> &Router {
        &self.router
    }
}
