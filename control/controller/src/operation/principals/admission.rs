//! Operations on admission.

use millrace_config::Service;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::admission::services::{self, Demand};
use crate::configuration::single::plan_admission;
use crate::operation::kinds::{Change, Changing, Query, Reading};
use crate::operation::{Effect, Operation};
use crate::router::Inner;
use crate::view::{AdmissionView, ServicePlaceView};
use crate::{ControlError, admission};

/// Reads what the router may promise of each component, and what it has promised to whom.
#[derive(Clone, Copy, Debug, Default)]
pub struct GetAdmission;

impl Operation for GetAdmission {
    type Answer = AdmissionView;
    type Kind = Query;

    async fn carry_out(self, router: &Reading) -> Result<AdmissionView, ControlError> {
        Ok(admission::view(&router.lock().model))
    }
}

/// Explains at which level a service would go, and what would be left. Nothing changes.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplainService {
    /// Plugin of the service.
    pub plugin: String,
    /// Name of the instance; an instance of this name no longer counts. Default: a new instance.
    #[serde(default)]
    pub instance: Option<String>,
    /// Declared load of the service, and its level.
    pub service: Service,
}

impl Operation for ExplainService {
    type Answer = ServicePlaceView;
    type Kind = Query;

    /// # Errors
    /// Returns an error for an unknown plugin, an invalid load, a level at which the plugin can't run, or if no
    /// level has room.
    async fn carry_out(self, router: &Reading) -> Result<ServicePlaceView, ControlError> {
        let Self { plugin, instance, service } = self;
        let mut guard = router.lock();
        let seen = guard.seen();
        let (model, offload) = (seen.model, seen.offload);
        let plugin = model.plugins.plugin_named(&plugin)?;
        let instance = instance.as_deref().unwrap_or("new");
        let owner = router.caller().requester().owner_of_instances(&model.admission);
        let owner = owner.filter(|_| model.plugins.instance(instance).is_err());
        let demand = Demand::of(instance, &*plugin, service).owned_by(owner.as_ref());
        let decision = services::decide(model, demand, offload.why_no_cache())?;
        let level = decision.placed.level.name();
        let moves = decision.moves.iter();
        let moves = moves.map(|(instance, place)| (instance.clone(), place.level.name())).collect();
        let mut placements = model.placements.clone();
        decision.carry_out(&mut placements);
        let components = admission::view_with(model, &placements.services).components;
        Ok(ServicePlaceView { level, moves, components })
    }
}

/// Changes how much the router may promise.
#[derive(Clone, Debug)]
pub struct SetAdmission {
    /// Changed settings; `null` resets a setting to its default.
    pub changes: Map<String, Value>,
}

impl Operation for SetAdmission {
    type Answer = AdmissionView;
    type Kind = Change;
    const EFFECT: Effect = Effect::Protection;
    const TAKES_MEMORY: bool = false;

    /// # Errors
    /// Returns an error for unknown settings, for values out of range, or if the promises of today exceed them.
    /// Nothing has changed then.
    async fn carry_out(self, router: &Changing) -> Result<AdmissionView, ControlError> {
        let Self { changes } = self;
        let plan = move |inner: &mut Inner| Ok((plan_admission(&inner.model, &changes)?, ()));
        router.change(plan, |inner, ()| Ok(admission::view(&inner.model))).await
    }
}
