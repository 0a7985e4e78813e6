//! Operations: typed requests to a running router. Only [`Router::execute`] executes them.
//!
//! An operation is a value, and its fields are the arguments. Its type determines three things: the answer,
//! the role that a caller needs, and the effect (the worst that a caller can cause). Operations use the
//! components of the router; the components don't depend on operations.

mod access;
mod caller;
mod configuration;
mod filters;
mod flows;
mod instances;
pub mod kinds;
mod observe;
mod plugins;
mod ports;
mod principals;
pub(crate) mod requests;
mod routes;
mod schedulers;
mod upgrade;

use std::future::Future;

use millrace_config::Role;

pub use self::access::{CreateToken, ListTokens, ReadAudit, RevokeToken};
pub use self::caller::{Call, Caller, Effect, Principal};
pub use self::configuration::{CompareConfiguration, Confirm, GetConfiguration, GetRevision, ListRevisions};
pub use self::filters::{
    AddFilter, AddFilters, Bind, CheckFilters, CreateGate, ExplainFilters, ListBindings, ListGates,
    RemoveFilter, RemoveFilters, RemoveGate, SetGateTable, Unbind,
};
pub use self::flows::{FlushFlows, ListConnections, ListFlows, ListPlacements, Lookup, PlaceFlows};
pub use self::instances::{
    ControlHostCompanion, ControlInstance, CreateInstance, FreeInstance, ListInstances, MoveInstance,
    RenameInstance, SetInstance,
};
use self::kinds::{Kind, Reading};
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
pub use self::principals::{
    AddAllowance, AddPrincipal, DeadlineRequest, ExplainService, GetAdmission, GetPromises, ListAllowances,
    ListPrincipals, ReleaseFlow, RemoveAllowance, RemovePrincipal, ReserveFlow, SetAdmission, SetAllowance,
    SetPrincipal, Trial,
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
    /// Kind of the operation, which decides which parts of the router it can reach.
    type Kind: Kind;
    /// Worst that a caller can cause with the operation.
    const EFFECT: Effect = Self::Kind::EFFECT;
    /// Lowest role that may request the operation.
    const ROLE: Role = Self::EFFECT.least_role();
    /// Whether the operation allocates memory that stays in use after it ends. Such an operation is refused
    /// while memory is short.
    const TAKES_MEMORY: bool = Self::Kind::TAKES_MEMORY;
    /// Reason why an action has no inverse; empty for other kinds.
    const NO_INVERSE: &'static str = "";

    /// Returns the revision of the configuration that the operation made or confirmed.
    fn revision(_answer: &Self::Answer) -> Option<u64> {
        None
    }

    /// Carries out the operation. Only [`Router::execute`] can provide the access that this method needs.
    ///
    /// # Errors
    /// Each operation documents its errors. An operation that asks the workers also fails if the data plane
    /// does not answer.
    fn carry_out(
        self,
        router: &<Self::Kind as Kind>::Access,
    ) -> impl Future<Output = Result<Self::Answer, ControlError>> + Send;
}

impl Router {
    /// Executes an operation. Checks that the caller's role and the free memory suffice, carries the
    /// operation out, and records the outcome in the caller's call.
    ///
    /// If the future is dropped, a transaction continues to its end, but any other operation stops. The audit
    /// log then records an audited call as abandoned.
    ///
    /// # Errors
    /// Returns [`ControlError::Forbidden`] if the caller's role is too low, [`ControlError::NoRoom`] if
    /// memory is short, or an error of the operation.
    pub async fn execute<O: Operation>(
        &self,
        caller: &impl Caller,
        operation: O,
    ) -> Result<O::Answer, ControlError> {
        const {
            if let Some(reads) = O::Kind::READS {
                assert!(reads == O::EFFECT.reads(), "the effect of an operation fits its kind");
            }
            assert!(O::Kind::HAS_INVERSE == O::NO_INVERSE.is_empty(), "an action says why it has no inverse");
        }
        let call = caller.call::<O>(self);
        call.begin(O::EFFECT);
        let result = match self.admit::<O>(call.principal()) {
            Ok(reading) => operation.carry_out(&O::Kind::access(reading)).await,
            Err(refused) => Err(refused),
        };
        call.end(O::EFFECT, result.as_ref().map(O::revision));
        result
    }

    /// Checks that the caller has the needed role, and that the router has memory for the operation. Returns
    /// the access of a query.
    ///
    /// # Errors
    /// Returns [`ControlError::Forbidden`] if the caller's role is too low, or [`ControlError::NoRoom`] if
    /// the operation takes memory and memory is short.
    fn admit<O: Operation>(&self, caller: &Principal) -> Result<Reading, ControlError> {
        caller.may(O::ROLE)?;
        if O::TAKES_MEMORY {
            self.room_for(0)?;
        }
        Ok(Reading::new(self, caller))
    }
}

#[cfg(test)]
mod tests;
