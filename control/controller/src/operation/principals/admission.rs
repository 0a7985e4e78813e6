//! Operations on admission.

use serde_json::{Map, Value};

use crate::configuration::single::plan_admission;
use crate::operation::kinds::{Change, Changing, Query, Reading};
use crate::operation::{Effect, Operation};
use crate::router::Inner;
use crate::view::AdmissionView;
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
