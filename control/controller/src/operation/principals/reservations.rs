//! Operations that reserve and release resources for the flows of a filter: a principal with its queue and
//! binding.

use std::collections::BTreeMap;

use millrace_admission::deadline::Grant;
use millrace_classify::FilterExpression;
use millrace_config::{
    Bind, Bits, Change as ConfigChange, CpuShare, Filter, FilterAction, LinkReservation, OnFault, Principal,
    Reservation, Text,
};
use millrace_pipeline::PrincipalCommand;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::deadlines::DeadlineRequest;
use super::trial::left_after;
use super::{deadlines, find, planned, refuse_same_as, valid};
use crate::ControlError;
use crate::admission::allowances::{self as permitted, Requester};
use crate::admission::shares::check_running;
use crate::filters::parse_filter;
use crate::model::Model;
use crate::model::principals::Owners;
use crate::model::running::running_bind;
use crate::model::schedulers::links::queue_name;
use crate::operation::kinds::{Change, Changing};
use crate::operation::{Effect, Operation};
use crate::principals::after;
use crate::request::reading::read_settings;
use crate::router::Inner;
use crate::view::ReservationView;
use crate::workers::death::Need;

/// Gate of the binding of a reservation that names none.
const GATE: &str = "process";

/// Reserves resources for the flows of a filter: adds a principal, a filter that gives it or only its queue to
/// the flows, and a binding that the principal pays for. All or nothing.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReserveFlow {
    /// Filter of the flows.
    pub filter: String,
    /// Name of the new principal. Default: `flow-` and the lowest free number.
    #[serde(default)]
    pub principal: Option<String>,
    /// Reserved processor time, of one processor.
    #[serde(default)]
    pub cpu: Option<CpuShare>,
    /// Reserved rate on the wire at `port`.
    #[serde(default)]
    pub link: Option<Bits>,
    /// Port of `link`.
    #[serde(default)]
    pub port: Option<String>,
    /// Deadline of each packet, instead of `cpu` and `link`: the router finds the shares that meet it, of the
    /// processor if `cost` is given, and of the link if `port` is given.
    #[serde(default)]
    pub deadline: Option<DeadlineRequest>,
    /// Instance to bind to the flows. Default: none.
    #[serde(default)]
    pub instance: Option<String>,
    /// Gate of the binding. Default `process`.
    #[serde(default)]
    pub gate: Option<String>,
    /// Priority of filter and binding. Default 0.
    #[serde(default)]
    pub priority: i32,
    /// Whether to check the reservation only: nothing changes. Default `false`.
    #[serde(default)]
    pub dry_run: bool,
}

impl Operation for ReserveFlow {
    type Answer = ReservationView;
    type Kind = Change;
    const EFFECT: Effect = Effect::Shares;

    /// # Errors
    /// Returns an error for a name in use, an unknown port, instance or gate, an invalid or conflicting filter,
    /// or a share that the processors, the workers, the port or an allowance of the caller lack. Nothing has changed then.
    async fn carry_out(self, router: &Changing) -> Result<ReservationView, ControlError> {
        let by = router.caller().requester();
        let plan = move |inner: &mut Inner| {
            let (dry_run, death) = (self.dry_run, &inner.supervision.death);
            death.refuse_silent(Need::Filters)?;
            let grant = self.grant(&inner.model)?;
            let (principal, changes) =
                self.plan(&inner.model, &by, grant.as_ref().map(|(asked, grant)| (*asked, grant)))?;
            permitted::check(&inner.model, &by, &changes)?;
            let deadline = grant.as_ref().map(|(_, grant)| deadlines::view(grant));
            let view = view_of(&mut inner.model, &principal, &changes)?;
            let components = if dry_run { view.components } else { Vec::new() };
            let view = ReservationView { deadline, components, ..view };
            Ok((if dry_run { Vec::new() } else { changes }, view))
        };
        router.change(plan, |_, view| Ok(view)).await
    }
}

impl ReserveFlow {
    /// Returns the shares that meet the deadline, if one is asked for.
    fn grant(&self, model: &Model) -> Result<Option<(DeadlineRequest, Grant)>, ControlError> {
        let Some(asked) = self.deadline else { return Ok(None) };
        if self.cpu.is_some() || self.link.is_some() {
            return Err(ControlError::invalid(
                "a deadline decides about the shares: give no cpu and no link beside it, but cost and port",
            ));
        }
        asked.grant(model, self.port.as_deref()).map(|grant| Some((asked, grant)))
    }

    /// Returns the rate to reserve; none if a deadline decides about it.
    fn link(&self, has_deadline: bool) -> Result<BTreeMap<String, LinkReservation>, ControlError> {
        Ok(match (self.link, &self.port) {
            (Some(rate), Some(port)) => BTreeMap::from([(port.clone(), Reservation::Own(rate))]),
            (None, _) if has_deadline => BTreeMap::new(),
            (None, None) if self.cpu.is_some() => BTreeMap::new(),
            (None, None) => {
                return Err(ControlError::invalid(
                    "nothing to reserve: give cpu, or link with its port, or both",
                ));
            }
            (Some(_), None) => {
                return Err(ControlError::invalid(
                    "link needs the port that sends the flows: give port, too",
                ));
            }
            (None, Some(_)) => {
                return Err(ControlError::invalid("port needs a rate to reserve there: give link, too"));
            }
        })
    }

    fn plan(
        self,
        model: &Model,
        by: &Requester,
        grant: Option<(DeadlineRequest, &Grant)>,
    ) -> Result<(Principal, Vec<ConfigChange>), ControlError> {
        let name = self.principal.clone().unwrap_or_else(|| free_name(model));
        if model.principals.iter().any(|one| *one.name == *name) {
            return Err(ControlError::conflict(format!(
                "principal {name:?} exists already: release it with `flow release {name}`, or give another name"
            )));
        }
        let link = self.link(grant.is_some())?;
        let filter: FilterExpression = parse_filter(&self.filter)?;
        let named = json!({"name": name}).as_object().cloned().unwrap_or_default();
        let cpu = self.cpu.map(Reservation::Own);
        let principal = Principal { owner: by.owner(), cpu, link, ..read_settings("the request", named)? };
        let principal = match grant {
            Some((asked, grant)) => deadlines::with_grant(principal, asked, grant, deadlines::workers(model)),
            None => principal,
        };
        let principal = valid(principal)?;
        let mut changes = planned(model, by, ConfigChange::AddPrincipal(principal.clone()))?;
        check_running(model, &after(&model.principals, &changes[0]), Some(&name))?;
        // Only a share of the processor concerns the calls of plugins.
        let action = match principal.cpu {
            Some(_) => FilterAction::Principal(name.clone()),
            None => FilterAction::Queue(queue_name(&name)),
        };
        changes.push(ConfigChange::AddFilter(Filter {
            r#match: Text::of(filter.clone()),
            action: Text::of(action),
            gate: None,
            priority: self.priority,
        }));
        if let Some(instance) = &self.instance {
            model.plugins.instance(instance)?;
            changes.push(ConfigChange::Bind(Bind {
                instance: instance.as_str().into(),
                gate: self.gate.as_deref().unwrap_or(GATE).into(),
                filter: Text::of(filter),
                priority: self.priority,
                on_fault: OnFault::default(),
                principal: Some(name.as_str().into()),
                budget: None,
                packet_budget: None,
                queue: false,
                queue_weight: None,
            }));
        }
        Ok((principal, changes))
    }
}

/// Releases a reservation: removes a principal, with the bindings and filters that name it. All or nothing.
#[derive(Clone, Debug)]
pub struct ReleaseFlow {
    /// Name of the principal.
    pub name: String,
    /// Whether to drop the packets that wait for processor time of the principal, or in its queues at ports, instead of
    /// letting them continue. They are dropped also if the release then fails.
    pub drop: bool,
}

impl Operation for ReleaseFlow {
    type Answer = ReservationView;
    type Kind = Change;
    const EFFECT: Effect = Effect::Shares;
    const TAKES_MEMORY: bool = false;

    /// # Errors
    /// Returns an error for an unknown principal, one that another principal names in `same-as`, or one that an
    /// allowance keeps from the caller.
    async fn carry_out(self, router: &Changing) -> Result<ReservationView, ControlError> {
        let by = router.caller().requester();
        let plan = move |inner: &mut Inner| {
            let model = &inner.model;
            let principal = find(model, &self.name)?.clone();
            refuse_same_as(model, &self.name)?;
            let bindings = Owners(model).bindings_of(&self.name).into_iter().filter_map(|id| {
                let bound = model.plugins.binding(id)?;
                let instance = model.plugins.instance_name(bound.action.instance()?);
                Some(ConfigChange::Unbind(running_bind(model, bound, instance)))
            });
            let filters = Owners(model).filters_of(&self.name).into_iter();
            let filters =
                filters.filter_map(|id| model.plugins.binding(id)).map(|bound| model.running_filter(bound));
            let mut changes: Vec<_> = bindings.chain(filters.map(ConfigChange::RemoveFilter)).collect();
            changes.push(match self.drop {
                true => ConfigChange::ReleasePrincipal(principal.clone()),
                false => ConfigChange::RemovePrincipal(principal.clone()),
            });
            permitted::check(model, &by, &changes)?;
            let view = view_of(&mut inner.model, &principal, &changes)?;
            let view = ReservationView { components: Vec::new(), ..view };
            if self.drop {
                drop_waiting(inner, &self.name)?;
            }
            Ok((changes, view))
        };
        router.change(plan, |_, view| Ok(view)).await
    }
}

/// Lets the workers drop the packets that wait for a principal. Packets of a principal without a share of its own wait
/// for the one that pays, beside packets of others, and so continue.
fn drop_waiting(inner: &mut Inner, name: &str) -> Result<(), ControlError> {
    let Inner { model, workers, .. } = inner;
    match model.principal_ids.id(name).filter(|_| model.pays(name)) {
        Some(id) => workers.tell(|| PrincipalCommand::DropWaiting(id)),
        None => Ok(()),
    }
}

/// Returns the lowest free name of a generated principal.
fn free_name(model: &Model) -> String {
    let is_used = |name: &String| model.principals.iter().any(|one| *one.name == **name);
    let names = (1..=model.principals.len() + 1).map(|number| format!("flow-{number}"));
    names.into_iter().find(|name| !is_used(name)).unwrap_or_default()
}

/// Returns the view of planned changes of a principal.
///
/// # Errors
/// Returns the reason why the changes can't be made.
fn view_of(
    model: &mut Model,
    principal: &Principal,
    changes: &[ConfigChange],
) -> Result<ReservationView, ControlError> {
    let (left, components) = left_after(model, principal, changes)?;
    let changes = changes.iter().flat_map(ConfigChange::commands).collect();
    Ok(ReservationView { principal: principal.name.to_string(), changes, left, deadline: None, components })
}
