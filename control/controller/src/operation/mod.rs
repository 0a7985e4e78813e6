//! Operations: typed requests to a running router. [`Router::execute`] is the only way to them.
//!
//! An operation is a value: its fields are the arguments, and its type names the answer, the role that a caller
//! needs and the worst that a caller can cause. An operation reads and changes the state of components, which
//! know nothing of operations.

mod access;
mod admission;
mod caller;
mod configuration;
mod filters;
mod flows;
mod instances;
mod observe;
mod plugins;
mod ports;
pub(crate) mod requests;
mod routes;
mod schedulers;
mod selection;
mod upgrade;

use std::future::Future;
use std::ops::Deref;

use millrace_config::Role;

pub use self::access::{CreateToken, ListTokens, ReadAudit, RevokeToken};
pub use self::caller::{Call, Caller, Effect, Principal};
pub use self::configuration::{
    CompareConfiguration, CompareWithBase, Confirm, GetConfiguration, GetRevision, ListRevisions,
};
pub use self::filters::{
    AddFilter, AddFilters, Bind, CheckFilters, CreateGate, ExplainFilters, ListBindings, ListGates,
    RemoveFilter, RemoveFilters, RemoveGate, SetGateTable, Unbind,
};
pub use self::flows::{FlushFlows, ListFlows, ListPlacements, Lookup, PlaceFlows};
pub use self::instances::{
    ControlHostCompanion, ControlInstance, CreateInstance, FreeInstance, ListInstances, RenameInstance,
    SetInstance,
};
pub use self::observe::{
    ClearCounters, FollowEvents, GetStatus, GetSummary, ListDrops, ListEvents, ReadLastDrops, StartCapture,
    StartTrace, Trace,
};
pub use self::plugins::{
    GetInstanceMap, GetPlugin, ListInstanceMaps, ListPlugins, ListQuarantine, LoadPlugin, ReleaseInstance,
    UnloadPlugin,
};
pub use self::ports::{
    AddNeighbour, GetControlPlane, GetCounters, GetHardware, GetSettings, ListNeighbours, ListPorts,
    RemoveNeighbour, SetControlPlane, SetPort, SetSettings,
};
pub use self::routes::{
    AddRoute, AddRoutes, ListRoutes, LookupRoute, RemoveRoute, RemoveRoutes, ReplaceRoute,
};
pub use self::schedulers::{
    AddSchedulerNode, GetQueue, GetSchedulerSettings, ListQueues, ListSchedulers, RemoveSchedulerNode,
    SetQueue, SetScheduler, SetSchedulerNode,
};
pub use self::upgrade::{RollBackPlugin, UpgradePlugin};
use crate::ControlError;
use crate::router::Router;

/// Request to a running router.
pub trait Operation: Send {
    /// Answer on success.
    type Answer: Send;
    /// Lowest role that may request the operation.
    const ROLE: Role = Self::EFFECT.least_role();
    /// Worst that a caller can cause.
    const EFFECT: Effect;
    /// Whether the operation takes memory that it does not free at its end. While memory is short, it is refused.
    const TAKES_MEMORY: bool = false;

    /// Returns the revision of the configuration that the operation made or confirmed.
    fn revision(_answer: &Self::Answer) -> Option<u64> {
        None
    }

    /// Carries out the operation. [`Router::execute`] alone calls it.
    ///
    /// # Errors
    /// Each operation documents its errors.
    fn carry_out(
        self,
        router: &Router,
        caller: &Authorized<'_>,
    ) -> impl Future<Output = Result<Self::Answer, ControlError>> + Send;
}

/// Principal whose role suffices for an operation. Only [`Router::execute`] makes one.
#[derive(Debug)]
pub struct Authorized<'a>(&'a Principal);

impl<'a> Authorized<'a> {
    fn of(principal: &'a Principal, needed: Role) -> Result<Self, ControlError> {
        principal.may(needed).map(|()| Self(principal))
    }
}

impl Deref for Authorized<'_> {
    type Target = Principal;

    fn deref(&self) -> &Principal {
        self.0
    }
}

impl Router {
    /// Executes an operation: checks that the caller's role and the resources of the router suffice, carries the
    /// operation out, and records the outcome in the caller's call.
    ///
    /// If the future is dropped, an operation that is made as a transaction ends all the same, and others stop.
    /// An audited call is then recorded as abandoned.
    ///
    /// # Errors
    /// [`ControlError::Forbidden`] without the role that the operation needs, [`ControlError::NoRoom`] without the
    /// memory for it, or an error of the operation.
    pub async fn execute<O: Operation>(
        &self,
        caller: &impl Caller,
        operation: O,
    ) -> Result<O::Answer, ControlError> {
        let call = caller.call::<O>(self);
        call.begin(O::EFFECT);
        let admitted = Authorized::of(call.principal(), O::ROLE)
            .and_then(|caller| admission::admit::<O>(self).map(|()| caller));
        let result = match admitted {
            Ok(caller) => operation.carry_out(self, &caller).await,
            Err(refused) => Err(refused),
        };
        call.end(O::EFFECT, result.as_ref().map(O::revision));
        result
    }
}
