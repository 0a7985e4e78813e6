//! What a router without packets shows.

use std::collections::BTreeMap;

use millrace_controller::NewRoute;
use millrace_controller::view::{
    BindingView, DroppedView, FlowStatesView, FlowTableView, GateView, MemoryView, PluginInterfaceView,
    QueuesView, RouteView, StatusView, SummaryView, TurnsView,
};

use super::streams::raw_frame;

pub(crate) fn binding(instance: &str, gate: &str, filter: &str, priority: i32) -> BindingView {
    BindingView {
        id: 0,
        action: format!("instance {instance}"),
        instance: Some(instance.into()),
        gate: gate.into(),
        filter: filter.into(),
        priority,
        on_fault: Some("drop"),
        budget: Some(10_000),
        packet_budget: None,
        packets: 0,
        bytes: 0,
        drops: 0,
        queues: QueuesView::default(),
        shadowed_by: None,
        unreached: None,
    }
}

pub(crate) fn gate(name: String, bindings: Vec<BindingView>) -> GateView {
    GateView { name, position: "late", table: "linear", moved: None, memory: 0, links: None, bindings }
}

pub(crate) fn view(new: &NewRoute) -> RouteView {
    RouteView {
        to: new.to.clone(),
        kind: "forward",
        next_hops: Vec::new(),
        source: "millrace",
        protocol: "millrace".into(),
        missing: None,
        queues: None,
    }
}

pub(crate) fn status() -> StatusView {
    StatusView {
        crashes: None,
        version: "0",
        pid: 1,
        uptime: 0.5,
        on_death: None,
        mode: "adaptive",
        workers: 1,
        worker_cpu: vec![0.25],
        memory: MemoryView { used: 0, frames: 1 },
        routes: 0,
        flows: FlowTableView::default(),
        driver_flows: None,
        flow_states: FlowStatesView { flows: 0, bytes: 0, refused: 0 },
        turns: TurnsView { busy: 0, empty: 0, longest_change: 0 },
        sleeps: 0,
        applying: None,
        pending: None,
        missing_routes: None,
        plugin_interface: PluginInterfaceView::default(),
        leftover_objects: None,
        mirror: None,
    }
}

pub(crate) fn summary() -> SummaryView {
    SummaryView {
        received: 1,
        received_from_host: 0,
        created: 0,
        transmitted: 1,
        to_host: 0,
        consumed: 0,
        dropped: 0,
        held: 0,
        imbalance: 0,
        created_by: BTreeMap::new(),
        dropped_by: BTreeMap::new(),
    }
}

pub(crate) fn dropped() -> DroppedView {
    DroppedView {
        time: String::new(),
        reason: "no_route",
        worker: 0,
        port: "lan".into(),
        out_port: None,
        length: 60,
        summary: String::new(),
        binding: None,
        filter: None,
        instance: None,
        by: None,
        frame: "00".into(),
        raw: raw_frame(),
    }
}
