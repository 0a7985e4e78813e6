//! Placement of flows at levels: the configured level, the current level, and the reason for the current
//! level.
//!
//! By default, the router offloads a flow that sends packets and needs no worker, and evicts an idle flow. A
//! placement overrides this for the flows that its filter selects. The first placement that matches a flow
//! decides.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use millrace_classify::{CompiledSelection, Selection};
use millrace_config::{Change, Config, Placeable, PlacementLevel, ServiceLevel, Step};
use millrace_offload::LongestPath;
use millrace_pipeline::{
    BUDGET, EBPF_VARIANT_CALL, EBPF_VARIANT_LIMIT, FORWARD, FlowReport, Level, Placement, StaysUp,
    TOKEN_BUCKET,
};
use millrace_plugin::OffloadRefusal;
use millrace_units::InstanceId;

use crate::ControlError;
use crate::error::Unplannable;
use crate::filters::selection::{ReadSelection, ResolvedSelection};
use crate::flows::flow_cache::why_no_cache;
use crate::flows::offload::Offload;
use crate::model::permits::excluded_for;
use crate::model::placements::Placed;
use crate::model::{Model, PortPlan};
use crate::request::{NewPlacement, WantedLevel};
use crate::view::{OffloadBudgetView, PlacementView};
use crate::workers::Workers;

/// Compiled target of a placement.
pub(crate) enum Concerned {
    /// Flows of which at least one packet could match the selection.
    Flows(CompiledSelection),
    /// Flows that are bound to an instance.
    Bound(InstanceId),
}

/// Target of a placement before compilation, with ids instead of the names of ports and instance.
pub(crate) enum Resolved {
    Flows(ResolvedSelection),
    Bound(InstanceId),
}

impl Resolved {
    pub(crate) fn of(what: &Placeable, model: &Model) -> Result<Self, ControlError> {
        Ok(match what {
            Placeable::Flows(filter) => Self::Flows(ReadSelection::of(filter.clone()).resolve(model)?),
            Placeable::Instance(name) => Self::Bound(model.plugins.instance(name)?),
        })
    }

    pub(crate) fn compile(&self) -> Result<Concerned, ControlError> {
        Ok(match self {
            Self::Flows(selection) => {
                Concerned::Flows(selection.compile()?.unwrap_or_else(CompiledSelection::any))
            }
            Self::Bound(id) => Concerned::Bound(*id),
        })
    }
}

impl Concerned {
    fn is(&self, flow: &FlowReport, model: &Model) -> bool {
        match self {
            Self::Flows(filter) => filter.may_match_flow(&flow.key),
            Self::Bound(id) => {
                let bound = flow.bindings.iter().filter_map(|binding| model.plugins.binding(*binding));
                bound.into_iter().any(|bound| bound.action.instance() == Some(*id))
            }
        }
    }
}

/// Plans a new, changed or removed placement. `filter` is the parsed filter of the request. Returns the change,
/// the placement and its target; a removed placement has the level `Offload`.
pub(crate) fn plan_placement(
    model: &mut Model,
    offload: &Offload,
    new: &NewPlacement,
    filter: Result<Selection, ControlError>,
) -> Result<(Change, Placed, Resolved), ControlError> {
    let what = placeable(model, offload, new, filter)?;
    let resolved = Resolved::of(&what, model)?;
    let before = model.placements.clone();
    let known = model.placements.pinned.iter().position(|placed| placed.what == what);
    let level = match new.level {
        WantedLevel::Offload => Some(Level::Offload),
        WantedLevel::Worker => Some(Level::Worker),
        WantedLevel::Auto => None,
    };
    match (level, known) {
        (Some(level), Some(known)) => model.placements.pinned[known].level = level,
        (Some(level), None) => model.add_placement(Placed { what: what.clone(), level })?,
        (None, Some(known)) => drop(model.placements.pinned.remove(known)),
        (None, None) => {
            return Err(ControlError::not_found(format!(
                "no placement for {:?}: `place list` shows all placements",
                what.to_string()
            )));
        }
    }
    let after = std::mem::replace(&mut model.placements, before);
    let written = |placed: &[Placed]| placed.iter().map(Placed::written).collect();
    let change = Change::Place { from: written(&model.placements.pinned), to: written(&after.pinned) };
    Ok((change, Placed { what, level: level.unwrap_or(Level::Offload) }, resolved))
}

/// Counts the flows of each target, and all flows. A flow that belongs to several targets counts only for the
/// first of these targets.
pub(crate) fn counts_of(flows: &[FlowReport], concerned: &[Concerned], model: &Model) -> (Vec<Count>, Count) {
    let (mut counts, mut all) = (vec![Count::default(); concerned.len()], Count::default());
    for flow in flows {
        all.add(flow);
        if let Some(first) = concerned.iter().position(|one| one.is(flow, model)) {
            counts[first].add(flow);
        }
    }
    (counts, all)
}

/// Returns the target of a placement: the instance that the request names, or else the flows that `filter`
/// selects. `filter` is the parsed filter of the request.
fn placeable(
    model: &Model,
    offload: &Offload,
    new: &NewPlacement,
    filter: Result<Selection, ControlError>,
) -> Result<Placeable, ControlError> {
    let what = new.flow.trim();
    let named = what.strip_prefix("instance ").map(str::trim);
    let name = named.unwrap_or(what);
    match model.plugins.instance(name) {
        Ok(id) => {
            may_be_placed(new.level, offload)?;
            if new.level != WantedLevel::Auto && model.placements.service(name).is_some() {
                return Err(ControlError::conflict(format!(
                    "instance {name:?} has a declared load or level: move it with `instance move {name} --level …`"
                )));
            }
            if let (WantedLevel::Offload, Some(why)) =
                (new.level, excluded_for(model, name, ServiceLevel::Offload))
            {
                return Err(ControlError::conflict(format!("instance {name:?} can't be offloaded: {why}")));
            }
            let known = Placeable::Instance(name.to_owned());
            return match (new.level, offload.stays_up(id, model)) {
                (WantedLevel::Offload, Some(why)) if model.placements.pin(name).is_none() => {
                    Err(ControlError::conflict(format!("instance {name:?} can't be offloaded: {why}")))
                }
                _ => Ok(known),
            };
        }
        Err(unknown) if named.is_some() => return Err(unknown.into()),
        Err(_) => {}
    }
    if what.is_empty() {
        return Err(ControlError::invalid("the filter is empty: write * to match all flows".to_owned()));
    }
    let wrong = |error: ControlError| {
        ControlError::invalid(format!("{what:?} is neither an instance nor a filter: {error}"))
    };
    let flows = filter.map(Placeable::Flows).map_err(wrong)?;
    may_be_placed(new.level, offload)?;
    Ok(flows)
}

/// Refuses the offload level where there is no flow cache.
fn may_be_placed(level: WantedLevel, offload: &Offload) -> Result<(), ControlError> {
    match (level, offload.why_no_cache()) {
        (WantedLevel::Offload, Some(why)) => {
            Err(ControlError::conflict(format!("no flow can be offloaded: {why}")))
        }
        _ => Ok(()),
    }
}

/// Sends the placements of flows and instances to the workers, and waits until they are in force.
pub(crate) fn tell_placements(
    model: &Model,
    offload: &mut Offload,
    workers: &mut Workers,
) -> Result<(), ControlError> {
    let placement = |placed: &Placed| match &placed.what {
        Placeable::Flows(filter) => {
            Some(model.compile_selection(filter).map(|flows| Placement { flows, level: placed.level }))
        }
        Placeable::Instance(_) => None,
    };
    let flows: Vec<Placement> =
        model.placements.pinned.iter().filter_map(placement).collect::<Result<_, ControlError>>()?;
    offload.place(&flows, model, workers)
}

/// Records an error for each configured placement with the level `offload` if the configuration allows no
/// flow cache.
pub(crate) fn check_placements(model: &Model, config: &Config, wrong: &mut Unplannable) {
    let has_kernel = config.lacks("port") || model.ports.iter().any(PortPlan::is_kernel);
    let Some(why) = why_no_cache(has_kernel, config.router.offloaded_flows) else {
        return;
    };
    for (index, place) in config.place.iter().enumerate() {
        if place.level == PlacementLevel::Offload {
            let at = [Step::Key("place"), Step::Entry(index), Step::Key("level")];
            let flow = place.flow.written();
            let problem = format!("placement {flow:?}: no flow can be offloaded: {why}");
            wrong.unless::<()>(Err(ControlError::invalid(problem).placed(config, &at)));
        }
    }
}

/// Number of flows at each level.
#[derive(Clone, Debug, Default)]
pub(crate) struct Count {
    pub(crate) offload: u64,
    pub(crate) worker: u64,
    /// Numbers of flows at a worker, by the reason why they stay there.
    why: Vec<(StaysUp, u64)>,
}

impl Count {
    fn add(&mut self, flow: &FlowReport) {
        let Some(why) = flow.stays_up else {
            self.offload += 1;
            return;
        };
        self.worker += 1;
        match self.why.iter_mut().find(|(known, _)| *known == why) {
            Some((_, count)) => *count += 1,
            None => self.why.push((why, 1)),
        }
    }

    pub(crate) fn why(&self, model: &Model) -> BTreeMap<String, u64> {
        self.why.iter().map(|(why, count)| (words(*why, model), *count)).collect()
    }

    pub(crate) fn view(&self, placed: &Placed, model: &Model) -> PlacementView {
        PlacementView {
            flow: placed.what.to_string(),
            level: level(placed.level),
            offload: self.offload,
            worker: self.worker,
            why_worker: self.why(model),
        }
    }
}

fn level(level: Level) -> &'static str {
    match level {
        Level::Offload => "offload",
        Level::Worker => "worker",
    }
}

/// Returns the instruction budget of the XDP program for a packet, and the instructions of each step.
pub(crate) fn budget() -> OffloadBudgetView {
    // The program is part of the binary, so its longest path is constant.
    static LONGEST_PATH: OnceLock<Option<u32>> = OnceLock::new();
    let longest_path = *LONGEST_PATH.get_or_init(|| LongestPath::of_program().map(|path| path.forward));
    OffloadBudgetView {
        instructions: BUDGET,
        forward: FORWARD,
        token_bucket: TOKEN_BUCKET,
        ebpf_variant_call: EBPF_VARIANT_CALL,
        ebpf_variant: EBPF_VARIANT_LIMIT,
        longest_path,
    }
}

/// Returns the text of the reason why a flow stays at a worker.
pub(crate) fn words(why: StaysUp, model: &Model) -> String {
    let port = |id| model.port_name(id);
    match why {
        StaysUp::Own => "the router itself sends the flow".to_owned(),
        StaysUp::Placed => "a placement pins it to the worker".to_owned(),
        StaysUp::NoCache => "there is no flow cache: `show hardware` says why".to_owned(),
        StaysUp::Captured => "a capture is running on its packets".to_owned(),
        StaysUp::Traced => "a trace is running on its packets".to_owned(),
        StaysUp::Arrival(id) => {
            format!("the XDP program of port {} does not look up flows: `show hardware` says why", port(id))
        }
        StaysUp::Departure(id) => {
            format!("the XDP program can't send out of port {}: `show hardware` says why", port(id))
        }
        StaysUp::SamePort => "its ingress port is also its egress port".to_owned(),
        StaysUp::Scheduler(id) => {
            format!("port {} has a scheduler, which decides when its packets leave", port(id))
        }
        StaysUp::Tagged(id) => {
            format!("port {} is a VLAN sub-interface, whose flows are not offloaded", port(id))
        }
        StaysUp::Down(id) => format!("port {} is down", port(id)),
        StaysUp::Varying => "a filter matches its packets by TCP flags, DSCP or VLAN tag".to_owned(),
        StaysUp::Path(refusal) => path_refusal(refusal).to_owned(),
        StaysUp::Budget => format!("its processing takes more than {BUDGET} instructions per packet"),
        StaysUp::Sent => "a filter overrides its route".to_owned(),
        StaysUp::NotForwarded => "its packets are not forwarded".to_owned(),
        StaysUp::Neighbour => "the MAC address of its next hop is not known".to_owned(),
        StaysUp::Protocol => "it is neither TCP, nor UDP, nor ICMP".to_owned(),
        StaysUp::ComesUp => {
            "many of its packets are longer than the MTU, or than the XDP program's limit".to_owned()
        }
        StaysUp::Full => "the flow cache is full".to_owned(),
        StaysUp::Soon => "it is about to be offloaded".to_owned(),
    }
}

fn path_refusal(refusal: OffloadRefusal) -> &'static str {
    match refusal {
        OffloadRefusal::Instance => "an instance without an eBPF variant handles its packets",
        OffloadRefusal::Placed => "an instance that is pinned to the workers handles its packets",
        OffloadRefusal::Ahead => "the principal that pays for its plugin is ahead of its share",
        OffloadRefusal::Unwell => "an instance that is unhealthy or being replaced handles its packets",
        OffloadRefusal::Reject => "a filter rejects its packets with an ICMP error",
        OffloadRefusal::Queue => "a filter selects a queue for its packets",
        OffloadRefusal::Copy => "a filter copies its packets",
        OffloadRefusal::Steps => "more than 4 filters match it",
        OffloadRefusal::Policers => {
            "more than one step may drop its packets: token bucket, instance or filter"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assumed_instructions_are_at_least_the_measured_ones() {
        let path = LongestPath::of_program().unwrap();
        assert!(
            path.forward <= FORWARD && path.token_bucket <= TOKEN_BUCKET,
            "{path:?}: {FORWARD} and {TOKEN_BUCKET} are said"
        );
        assert!(
            FORWARD < 2 * path.forward && TOKEN_BUCKET < 3 * path.token_bucket,
            "{path:?}: the prices are far too high"
        );
        assert_eq!(budget().longest_path, Some(path.forward));
    }
}
