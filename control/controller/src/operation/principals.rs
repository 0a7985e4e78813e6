//! Operations on principals.

mod admission;
mod allowances;
mod deadlines;
mod reservations;
mod trial;

use std::collections::BTreeMap;

use millrace_config::{Change as ConfigChange, Config, Principal, Resource};
use millrace_units::count;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::ControlError;
use crate::admission::allowances::{self as permitted, Requester};
use crate::admission::memory::check_memory;
use crate::admission::services::check_links;
use crate::admission::shares::check_running;
use crate::configuration::single::checked;
use crate::model::Model;
use crate::model::principals::Owners;
use crate::operation::kinds::{Change, Changing, Query, Reading};
use crate::operation::{Effect, Operation};
use crate::principals::{Principals, after};
use crate::request::merge_patch::{all_known, patched};
use crate::request::reading::read_settings;
use crate::router::{Inner, Seen};
use crate::view::{PrincipalView, PromisesView};
pub use admission::{ExplainService, GetAdmission, SetAdmission};
pub use allowances::{AddAllowance, ListAllowances, RemoveAllowance, SetAllowance};
pub use deadlines::DeadlineRequest;
pub use reservations::{ReleaseFlow, ReserveFlow};
pub use trial::Trial;

/// Keys of a principal that can change.
const SETTINGS: [&str; 11] = [
    "owner",
    "cpu",
    "weight",
    "cpu-limit",
    "deadline",
    "queue",
    "link",
    "memory",
    "disk",
    "process",
    "processes",
];

/// Key of the name of another principal in a reservation.
const SAME_AS: &str = "same-as";

/// Lists the principals with their usage.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListPrincipals;

impl Operation for ListPrincipals {
    type Answer = Vec<PrincipalView>;
    type Kind = Query;

    /// # Errors
    /// Returns an error if the control group of a principal can't be read, or a worker does not answer.
    async fn carry_out(self, router: &Reading) -> Result<Vec<PrincipalView>, ControlError> {
        let mut guard = router.lock();
        let mut seen = guard.seen();
        let counters = seen.light_snapshot()?.principals;
        let Seen { model, principals, .. } = seen;
        model.principals.iter().map(|principal| principals.view(principal, model, &counters)).collect()
    }
}

/// Reads the promises to principals, beside what the workers delivered.
#[derive(Clone, Copy, Debug, Default)]
pub struct GetPromises;

impl Operation for GetPromises {
    type Answer = PromisesView;
    type Kind = Query;

    /// # Errors
    /// Returns an error if a worker does not answer.
    async fn carry_out(self, router: &Reading) -> Result<PromisesView, ControlError> {
        let mut guard = router.lock();
        let mut seen = guard.seen();
        let counters = seen.light_snapshot()?;
        let Principals { shares, promises, core_inputs, links, threads, .. } = seen.principals;
        let promised = shares.promised(seen.model, seen.workers.len());
        Ok(PromisesView {
            promises: promises.view(seen.model, &promised, &counters.principals, links),
            core_inputs: core_inputs.view(seen.model, &promised),
            core_functions: core_inputs.functions(seen.model, &promised),
            links: links.view(seen.model),
            processes: seen.principals.process_promises(seen.model),
            thread_groups: threads.view(),
        })
    }
}

/// Adds a principal, and creates its control group. The principal belongs to the caller, unless an admin names
/// another owner.
#[derive(Clone, Debug, Deserialize)]
pub struct AddPrincipal(
    /// Principal to add.
    pub Principal,
);

impl Operation for AddPrincipal {
    type Answer = PrincipalView;
    type Kind = Change;
    const EFFECT: Effect = Effect::Shares;

    /// # Errors
    /// Returns an error for an invalid name or setting, a name in use, reserved shares above all processors or
    /// above an allowance of the caller, or a machine without usable control groups. Nothing has changed then.
    async fn carry_out(self, router: &Changing) -> Result<PrincipalView, ControlError> {
        let (by, name) = (router.caller().requester(), self.0.name.to_string());
        let plan = move |inner: &mut Inner| Ok((self.plan(&inner.model, &by)?, name));
        router.change(plan, |inner, name| view(inner, &name)).await
    }
}

impl AddPrincipal {
    fn plan(self, model: &Model, by: &Requester) -> Result<Vec<ConfigChange>, ControlError> {
        let principal = valid(self.0)?;
        let owner = principal.owner.clone().or_else(|| by.owner());
        if model.principals.iter().any(|one| one.name == principal.name) {
            return Err(ControlError::conflict(format!(
                "principal {:?} exists already: change it with `principal set`",
                &*principal.name
            )));
        }
        planned(model, by, ConfigChange::AddPrincipal(Principal { owner, ..principal }))
    }
}

/// Changes shares and limits of a principal. They apply to its running processes at once.
#[derive(Clone, Debug)]
pub struct SetPrincipal {
    /// Name of the principal.
    pub name: String,
    /// Settings to change; `null` restores the default of a setting.
    pub changes: Map<String, Value>,
}

impl Operation for SetPrincipal {
    type Answer = PrincipalView;
    type Kind = Change;
    const EFFECT: Effect = Effect::Shares;
    const TAKES_MEMORY: bool = false;

    /// # Errors
    /// Returns an error for an unknown principal, an invalid setting, reserved shares above all processors or
    /// above an allowance of the caller, or a value that the kernel refuses. Nothing has changed then.
    async fn carry_out(self, router: &Changing) -> Result<PrincipalView, ControlError> {
        check_changes(&self.name, &self.changes)?;
        let (by, name) = (router.caller().requester(), self.name.clone());
        let plan = move |inner: &mut Inner| Ok((self.plan(&inner.model, &by)?, name));
        router.change(plan, |inner, name| view(inner, &name)).await
    }
}

impl SetPrincipal {
    fn plan(self, model: &Model, by: &Requester) -> Result<Vec<ConfigChange>, ControlError> {
        check_changes(&self.name, &self.changes)?;
        let from = find(model, &self.name)?.clone();
        let to = valid(patched(&from, &merged(&from, self.changes)?)?)?;
        match from == to {
            true => Ok(Vec::new()),
            false => {
                let (from, to) = (Box::new(from), Box::new(to));
                planned(model, by, ConfigChange::SetPrincipal { from, to })
            }
        }
    }
}

/// Removes a principal and its control group. Its processes continue without limits.
#[derive(Clone, Debug, Deserialize)]
pub struct RemovePrincipal {
    /// Name of the principal.
    pub name: String,
}

impl Operation for RemovePrincipal {
    type Answer = PrincipalView;
    type Kind = Change;
    const EFFECT: Effect = Effect::Shares;
    const TAKES_MEMORY: bool = false;

    /// # Errors
    /// Returns an error for an unknown principal, for one that an allowance keeps from the caller or that pays for bindings, or if a process can't be moved
    /// out of the group.
    async fn carry_out(self, router: &Changing) -> Result<PrincipalView, ControlError> {
        let by = router.caller().requester();
        let plan = move |inner: &mut Inner| {
            let before = view(inner, &self.name)?;
            let principal = find(&inner.model, &self.name)?.clone();
            refuse_named(&inner.model, &self.name)?;
            let changes = vec![ConfigChange::RemovePrincipal(principal)];
            permitted::check(&inner.model, &by, &changes)?;
            Ok((changes, before))
        };
        router.change(plan, |_, before| Ok(before)).await
    }
}

/// Checks the keys and types of changed settings.
fn check_changes(name: &str, changes: &Map<String, Value>) -> Result<(), ControlError> {
    all_known("setting of a principal", changes, SETTINGS.into_iter())?;
    let mut settings = changes.clone();
    settings.retain(|_, value| !is_empty(value));
    settings.insert("name".to_owned(), name.into());
    read_settings::<Principal>("the request", settings).map(drop)
}

/// Whether nothing remains of a value without its `null`s. Removes them.
fn is_empty(value: &mut Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(inner) => {
            inner.retain(|_, value| !is_empty(value));
            inner.is_empty()
        }
        _ => false,
    }
}

/// Returns changes of a principal in which changes of inner settings are merged into the present ones.
///
/// # Errors
/// An inner setting of a reservation is unknown.
fn merged(from: &Principal, mut changes: Map<String, Value>) -> Result<Map<String, Value>, ControlError> {
    let mut present = serde_json::to_value(from).unwrap_or_default();
    let mut before = |key: &str| present.get_mut(key).map(Value::take);
    if let Some(change) = changes.get_mut("cpu") {
        *change = merged_reservation(before("cpu"), change.take())?.unwrap_or_default();
    }
    if let Some(Value::Object(links)) = changes.get_mut("link") {
        let mut after = match before("link") {
            Some(Value::Object(before)) => before,
            _ => Map::new(),
        };
        for (port, change) in std::mem::take(links) {
            if let Some(link) = merged_reservation(after.remove(&port), change)? {
                after.insert(port, link);
            }
        }
        *links = after;
    }
    Ok(changes)
}

/// Returns a reservation after its change; `None` if it is gone. An amount of its own has no `same-as` that could
/// be removed, so it stays.
fn merged_reservation(before: Option<Value>, change: Value) -> Result<Option<Value>, ControlError> {
    let inner = match change {
        Value::Null => return Ok(None),
        Value::Object(inner) => inner,
        amount => return Ok(Some(amount)),
    };
    let mut inner: Map<String, Value> =
        inner.into_iter().map(|(key, value)| (key.replace('_', "-"), value)).collect();
    all_known("setting of a reservation", &inner, std::iter::once(SAME_AS))?;
    Ok(match inner.remove(SAME_AS) {
        None => before,
        Some(Value::Null) => before.filter(|before| !before.is_object()),
        Some(other) => Some(Value::Object(Map::from_iter([(SAME_AS.to_owned(), other)]))),
    })
}

/// Refuses the removal of a principal that another one names in `same-as`.
pub(super) fn refuse_same_as(model: &Model, name: &str) -> Result<(), ControlError> {
    let named = |one: &&Principal, resource| one.same_as(resource).is_some_and(|other| **other == *name);
    let shared = model.principals.iter().find_map(|one| {
        let resource = one.resources().find(|resource| named(&one, *resource))?;
        Some((&*one.name, resource))
    });
    match shared {
        Some((other, Resource::Cpu)) => Err(ControlError::conflict(format!(
            "principal {name:?} pays for principal {other:?}: change its `cpu` first"
        ))),
        Some((other, Resource::Link(port))) => Err(ControlError::conflict(format!(
            "principal {other:?} shares the rate of principal {name:?} at port {port:?}: change its `link` first"
        ))),
        None => Ok(()),
    }
}

/// Checks the settings of a principal that concern it alone, and returns it in normal form.
pub(super) fn valid(principal: Principal) -> Result<Principal, ControlError> {
    let (link, cpu) = (principal.link.clone(), principal.cpu.clone());
    let has_payer = principal.same_as(Resource::Cpu).is_some();
    let alone = Principal { link: BTreeMap::new(), ..principal };
    let alone = match has_payer {
        true => Principal { cpu: None, ..alone },
        false => alone,
    };
    if let Some(key) = beside_same_as(&alone).filter(|_| has_payer) {
        return Err(ControlError::invalid(format!(
            "principal {:?}: {key} is set beside `same-as`, and belongs to the principal that pays",
            &*alone.name
        )));
    }
    let mut config = checked(Config { principal: vec![alone], ..Config::default() })?.normalized();
    let valid = config.principal.pop();
    let valid = valid.ok_or_else(|| ControlError::System("the principal vanished in the check".into()))?;
    Ok(Principal { link, cpu, ..valid })
}

/// Returns the key of a setting that needs a share of the principal's own.
fn beside_same_as(principal: &Principal) -> Option<&'static str> {
    let weight = principal.weight.map(|_| "weight");
    weight.or(principal.cpu_limit.map(|_| "cpu-limit")).or(principal.deadline.map(|_| "deadline"))
}

/// Refuses the removal of a principal that bindings, filters or principals name.
fn refuse_named(model: &Model, name: &str) -> Result<(), ControlError> {
    refuse_same_as(model, name)?;
    let (bindings, filters) = (Owners(model).bindings_of(name).len(), Owners(model).filters_of(name).len());
    let problem = match (bindings, filters) {
        (0, 0) => return Ok(()),
        (0, some) => format!(
            "is named by {}: remove them first, or `flow release {name}` removes all of it",
            count(some, "filter")
        ),
        (some, _) => format!(
            "pays for {}: `unbind` them first, or bind them with another principal",
            count(some, "binding")
        ),
    };
    Err(ControlError::conflict(format!("principal {name:?} {problem}")))
}

/// Returns a change as a list, if the principals after it can run together, and the user may make it.
pub(super) fn planned(
    model: &Model,
    by: &Requester,
    change: ConfigChange,
) -> Result<Vec<ConfigChange>, ControlError> {
    let (principals, changes) = (after(&model.principals, &change), vec![change]);
    permitted::check(model, by, &changes)?;
    check_running(model, &principals, None)?;
    check_memory(&principals, model, &model.admission)?;
    Owners(model).check_principals(&principals)?;
    check_links(model, &principals)?;
    Ok(changes)
}

pub(super) fn find<'a>(model: &'a Model, name: &str) -> Result<&'a Principal, ControlError> {
    Owners(model).refuse_service(name)?;
    let principals = &model.principals;
    let found = principals.iter().find(|principal| *principal.name == *name);
    let known = || principals.iter().map(|principal| &*principal.name);
    found.ok_or_else(|| ControlError::unknown("principal", name, known()))
}

fn view(inner: &mut Inner, name: &str) -> Result<PrincipalView, ControlError> {
    let counters = inner.seen().light_snapshot()?.principals;
    inner.principals.view(find(&inner.model, name)?, &inner.model, &counters)
}
