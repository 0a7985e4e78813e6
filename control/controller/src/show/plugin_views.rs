//! Views of plugins and their instances.

use std::collections::BTreeMap;

use millrace_config::ServiceLevel;
use millrace_pipeline::Snapshot;
use millrace_plugin::{InstanceReport, MessageCounts};
use millrace_plugin_abi::Runtime;
use millrace_units::InstanceId;

use super::{Counts, described};
use crate::ControlError;
use crate::model::Model;
use crate::view::{
    CallCountsView, DeclaredCyclesView, EbpfVariantView, HostCompanionView, InstancePlaceView, InstanceView,
    MessagesView, PacketCyclesView, PluginDetailView, PluginView,
};

/// Returns the views of all instances. `stays_up` returns the reason why packets of an instance stay at the
/// workers, and `companions` holds the reports of host companions. `frequency`: cycles per second.
pub(crate) fn instances(
    snapshot: &Snapshot,
    counts: &Counts,
    model: &Model,
    stays_up: &dyn Fn(InstanceId) -> Option<String>,
    companions: &BTreeMap<InstanceId, InstanceReport>,
    frequency: u64,
) -> Vec<InstanceView> {
    let view = |instance: millrace_plugin::InstanceDescription| {
        let id = model.plugins.instance(&instance.name).ok();
        let report = snapshot.instances.iter().find(|(known, _)| Some(*known) == id);
        let report = report.map(|(_, report)| report.clone()).unwrap_or_default();
        let declared =
            model.plugins.plugin_of(&instance.name).ok().and_then(|plugin| plugin.declared_cycles("worker"));
        let host_companion =
            id.and_then(|id| host_companion(&instance.name, companions.get(&id)?, &report, model));
        InstanceView {
            place: place(model, &instance.name, id.map(stays_up)),
            host_companion,
            name: instance.name,
            plugin: instance.plugin,
            contexts: instance.contexts,
            settings: instance.settings.into(),
            number: id.map_or(u16::MAX, |id| id.0),
            health: report.health.name(),
            calls: CallCountsView {
                faults: report.faults,
                last_fault: Some(report.last_fault).filter(|text| !text.is_empty()),
                suspensions: report.suspensions,
                misjudged: report.misjudged,
                cpu_seconds: report.used.0 as f64 / frequency as f64,
                memory: report.memory,
                packet_cycles: PacketCyclesView::of(&report.costs),
                declared_cycles: declared.map(DeclaredCyclesView::of),
            },
            drops: report.drops,
            counters: report.counters,
            packets: 0,
            packet_rate: 0.0,
            bindings: described(instance.bindings, counts, model),
        }
    };
    let view = |instance| {
        let mut view = view(instance);
        view.packets = view.bindings.iter().map(|binding| binding.packets).sum();
        view
    };
    model.plugins.instances().into_iter().map(view).collect()
}

/// Returns the level of an instance. `why` is the reason why its packets aren't offloaded; `None` for an unknown
/// instance.
fn place(model: &Model, name: &str, why: Option<Option<String>>) -> InstancePlaceView {
    let runtime = model.plugins.plugin_of(name).map(|plugin| plugin.runtime());
    InstancePlaceView {
        level: match (&why, runtime) {
            (Some(None), _) => ServiceLevel::Offload.name(),
            (_, Ok(Runtime::Process | Runtime::Executable)) => ServiceLevel::Host.name(),
            _ => ServiceLevel::Worker.name(),
        },
        why_worker: why.flatten(),
        service: model.placements.service(name).map(|placed| placed.service),
    }
}

/// Returns the view of an instance's host companion. Its message counters come from the reports of the
/// companion and of the instance.
fn host_companion(
    name: &str,
    companion: &InstanceReport,
    fast: &InstanceReport,
    model: &Model,
) -> Option<HostCompanionView> {
    let plugin = model.plugins.plugin_of(name).ok()?;
    let (module, companion) = (plugin.host_companion()?, companion.clone());
    let flow = |from: MessageCounts, to: MessageCounts| MessagesView {
        sent: from.sent,
        heard: to.heard,
        lost: from.unsent + to.lost,
    };
    Some(HostCompanionView {
        plugin: module.name(),
        version: module.version(),
        health: companion.health.name(),
        up: flow(fast.messages, companion.messages),
        down: flow(companion.messages, fast.messages),
        faults: companion.faults,
        last_fault: Some(companion.last_fault).filter(|text| !text.is_empty()),
        suspensions: companion.suspensions,
    })
}

pub(crate) fn plugins(model: &Model) -> Vec<PluginView> {
    model.plugins.plugin_registry().describe().into_iter().map(|plugin| plugin_view(model, plugin)).collect()
}

fn plugin_view(model: &Model, plugin: millrace_plugin::PluginDescription) -> PluginView {
    PluginView {
        name: plugin.name,
        version: plugin.version,
        summary: plugin.summary,
        runtime: plugin.runtime,
        codes: plugin.positions.iter().copied().zip(plugin.codes).collect(),
        positions: plugin.positions,
        messages: plugin.messages.into_iter().collect(),
        signature: model.repository.origin(plugin.name).map(|origin| origin.to_string()),
        features: plugin.features,
        capabilities: plugin.capabilities,
        counters: plugin.counters,
        contexts: plugin.contexts,
    }
}

/// Returns the detailed view of a plugin, with its instances.
pub(crate) fn plugin(model: &Model, name: &str) -> Result<PluginDetailView, ControlError> {
    let statement = model.plugins.plugin_registry().state(name)?;
    let mut view = PluginDetailView::of(statement, &|plugin| plugin_view(model, plugin));
    let own = model.plugins.instances().into_iter().filter(|instance| instance.plugin == name);
    view.instances = own.map(|instance| instance.name).collect();
    view.ebpf_variant = model.plugins.plugin_named(name)?.ebpf_variant().map(|variant| EbpfVariantView {
        settings: variant.settings,
        counters: variant.counters,
        bytes: variant.object.len(),
    });
    Ok(view)
}
