//! Operations on allowances.

use millrace_config::{Admission, Allowance, Change as ConfigChange, Config, Named};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::is_empty;
use crate::ControlError;
use crate::admission::allowances::{Requester, check, view};
use crate::configuration::single::checked;
use crate::model::Model;
use crate::operation::kinds::{Change, Changing, Query, Reading};
use crate::operation::{Effect, Operation};
use crate::request::merge_patch::{all_known, patched};
use crate::request::reading::read_settings;
use crate::router::Inner;
use crate::view::AllowanceView;

/// Keys of an allowance that can change.
const SETTINGS: [&str; 8] = ["user", "role", "level", "processor", "cpu", "link", "memory", "principals"];

/// Lists the allowances, with what their users hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListAllowances;

impl Operation for ListAllowances {
    type Answer = Vec<AllowanceView>;
    type Kind = Query;

    async fn carry_out(self, router: &Reading) -> Result<Vec<AllowanceView>, ControlError> {
        let (inner, by) = (router.lock(), router.caller().requester());
        Ok(inner.model.admission.allowance.iter().map(|one| view(&inner.model, one, &by)).collect())
    }
}

/// Adds an allowance.
#[derive(Clone, Debug, Deserialize)]
pub struct AddAllowance(
    /// Allowance to add.
    pub Allowance,
);

impl Operation for AddAllowance {
    type Answer = AllowanceView;
    type Kind = Change;
    const EFFECT: Effect = Effect::Protection;

    /// # Errors
    /// Returns an error for an invalid name or setting, a name in use, or a user whom an allowance concerns.
    async fn carry_out(self, router: &Changing) -> Result<AllowanceView, ControlError> {
        let name = self.0.name.to_string();
        change(router, name, |model, by| self.plan(model, by)).await
    }
}

impl AddAllowance {
    /// Returns the change, if the user may make it.
    pub(super) fn plan(self, model: &Model, by: &Requester) -> Result<Vec<ConfigChange>, ControlError> {
        let Self(new) = self;
        planned(model, by, |all| match all.iter().any(|one| one.name == new.name) {
            true => Err(ControlError::conflict(format!(
                "allowance {:?} exists already: change it with `allowance set`",
                &*new.name
            ))),
            false => {
                all.push(new);
                Ok(())
            }
        })
    }
}

/// Changes an allowance. What users hold already stays.
#[derive(Clone, Debug)]
pub struct SetAllowance {
    /// Name of the allowance.
    pub name: String,
    /// Settings to change; `null` restores the default of a setting.
    pub changes: Map<String, Value>,
}

impl Operation for SetAllowance {
    type Answer = AllowanceView;
    type Kind = Change;
    const EFFECT: Effect = Effect::Protection;

    /// # Errors
    /// Returns an error for an unknown allowance, an invalid setting, or a user whom an allowance concerns.
    async fn carry_out(self, router: &Changing) -> Result<AllowanceView, ControlError> {
        check_changes(&self.name, &self.changes)?;
        let name = self.name.clone();
        change(router, name, |model, by| self.plan(model, by)).await
    }
}

impl SetAllowance {
    /// Returns the change, if the user may make it.
    pub(super) fn plan(self, model: &Model, by: &Requester) -> Result<Vec<ConfigChange>, ControlError> {
        let Self { name, changes } = self;
        check_changes(&name, &changes)?;
        planned(model, by, |all| {
            let place = find(all, &name)?;
            let one = &mut all[place];
            *one = patched(one, &merged(one, changes))?;
            Ok(())
        })
    }
}

/// Removes an allowance. What its users hold stays.
#[derive(Clone, Debug, Deserialize)]
pub struct RemoveAllowance {
    /// Name of the allowance.
    pub name: String,
}

impl Operation for RemoveAllowance {
    type Answer = AllowanceView;
    type Kind = Change;
    const EFFECT: Effect = Effect::Protection;
    const TAKES_MEMORY: bool = false;

    /// # Errors
    /// Returns an error for an unknown allowance, or a user whom an allowance concerns.
    async fn carry_out(self, router: &Changing) -> Result<AllowanceView, ControlError> {
        let by = router.caller().requester();
        let plan = move |inner: &mut Inner| {
            let from = inner.model.admission.clone();
            let mut to = from.clone();
            let gone = to.allowance.remove(find(&to.allowance, &self.name)?);
            let changes = vec![ConfigChange::Admission { from, to }];
            check(&inner.model, &by, &changes)?;
            Ok((changes, view(&inner.model, &gone, &by)))
        };
        router.change(plan, |_, view| Ok(view)).await
    }
}

/// Checks the keys and types of changed settings.
fn check_changes(name: &str, changes: &Map<String, Value>) -> Result<(), ControlError> {
    all_known("setting of an allowance", changes, SETTINGS.into_iter())?;
    let mut settings = changes.clone();
    settings.retain(|_, value| !is_empty(value));
    settings.insert("name".to_owned(), name.into());
    read_settings::<Allowance>("the request", settings).map(drop)
}

/// Returns the change of the list of allowances, if the user may make it.
fn planned(
    model: &Model,
    by: &Requester,
    change: impl FnOnce(&mut Vec<Allowance>) -> Result<(), ControlError>,
) -> Result<Vec<ConfigChange>, ControlError> {
    let from = model.admission.clone();
    let mut to = from.clone();
    change(&mut to.allowance)?;
    let to = valid(model, to)?;
    let changes = if from == to { Vec::new() } else { vec![ConfigChange::Admission { from, to }] };
    check(model, by, &changes)?;
    Ok(changes)
}

/// Makes a planned change of the allowances. Returns the view of the allowance that the plan names.
async fn change(
    router: &Changing,
    name: String,
    plan: impl FnOnce(&Model, &Requester) -> Result<Vec<ConfigChange>, ControlError> + Send + 'static,
) -> Result<AllowanceView, ControlError> {
    let by = router.caller().requester();
    let requester = by.clone();
    let plan = move |inner: &mut Inner| Ok((plan(&inner.model, &requester)?, name));
    let answer = move |inner: &mut Inner, name: String| {
        let all = &inner.model.admission.allowance;
        Ok(view(&inner.model, &all[find(all, &name)?], &by))
    };
    router.change(plan, answer).await
}

/// Returns changes of an allowance in which the changes of single ports in `link` are merged into the present rates.
fn merged(before: &Allowance, mut changes: Map<String, Value>) -> Map<String, Value> {
    if let Some(Value::Object(changed)) = changes.get_mut("link") {
        let rates = before.link.iter().map(|(port, rate)| (port.clone(), rate.to_string().into()));
        let mut link: Map<String, Value> = rates.collect();
        link.append(changed);
        link.retain(|_, rate| !rate.is_null());
        *changed = link;
    }
    changes
}

/// Checks allowances by themselves, and the names of ports and processors in them.
fn valid(model: &Model, admission: Admission) -> Result<Admission, ControlError> {
    let mut alone = admission.clone();
    alone.allowance.iter_mut().for_each(|one| (one.link, one.processor) = Default::default());
    checked(Config { admission: alone, ..Config::default() })?;
    check_names(model, &admission)?;
    Ok(admission)
}

/// Checks that the router has the ports and processors that allowances name.
fn check_names(model: &Model, admission: &Admission) -> Result<(), ControlError> {
    let ports = model.ports.iter().map(|plan| &*plan.settings.name);
    let unknown = admission.allowance.iter().find_map(|one| one.unknown(ports.clone(), model.router.workers));
    unknown.map_or(Ok(()), |(_, problem)| Err(ControlError::not_found(problem)))
}

fn find(all: &[Allowance], name: &str) -> Result<usize, ControlError> {
    let found = all.iter().position(|one| one.name == Named::from(name));
    found.ok_or_else(|| ControlError::unknown("allowance", name, all.iter().map(|one| &*one.name)))
}
