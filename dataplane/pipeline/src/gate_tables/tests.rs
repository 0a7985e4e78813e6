//! Tests of gate tables that control changes while workers read them.

use millrace_classify::FilterExpression;
use millrace_classify::prefix_match::PrefixMatchKind;
use millrace_packet::{Exceptions, FlowKey};
use millrace_plugin::CallLimits;
use millrace_units::{InstanceId, PortId};
use proptest::prelude::*;

use super::*;

fn compiled(text: &str) -> CompiledExpression {
    text.parse::<FilterExpression>().unwrap().compile(|_| Some(PortId(1))).unwrap()
}

fn bind(binding: u32, filter: &str, action: Action) -> PluginChange<CompiledExpression> {
    let (binding, gate) = (BindingId(binding), GateId(2));
    PluginChange::Bind {
        binding,
        gate,
        filter: compiled(filter),
        priority: 0,
        action,
        call_limits: CallLimits::default(),
    }
}

fn unbind(binding: u32, filter: &str) -> PluginChange<CompiledExpression> {
    PluginChange::Unbind { binding: BindingId(binding), gate: GateId(2), filter: compiled(filter) }
}

fn instance() -> Action {
    Action::Instance(InstanceId(0))
}

fn table(changes: Vec<PluginChange<Published>>) -> Arc<GateTable> {
    match changes.into_iter().last() {
        Some(
            PluginChange::Bind { filter, .. }
            | PluginChange::Unbind { filter, .. }
            | PluginChange::Rebind { filter, .. },
        ) => filter.table,
        _ => panic!("no table"),
    }
}

fn packet(destination_port: u16) -> Candidate {
    let addresses = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
    Candidate::plain(FlowKey::v4(addresses[0], addresses[1], 6, (7, destination_port), PortId(1)))
}

#[test]
fn binding_that_changes_in_place_has_another_priority() {
    for kind in TableKind::ALL {
        let mut tables = GateTables::default();
        tables.set_kind(GateId(2), kind);
        let found = |table: &GateTable| table.lookup(&packet(80)).map(|id| id.0);
        let both = table(tables.publish(vec![bind(0, "*", instance()), bind(1, "dport 80", instance())]));
        assert_eq!(both.filters().len(), 2);
        let (binding, gate, call_limits) = (BindingId(0), GateId(2), CallLimits::default());
        for (priority, winner) in [(100, 0), (-100, 1)] {
            let filter = compiled("*");
            let change = PluginChange::Rebind { binding, gate, filter, priority, call_limits };
            let after = table(tables.publish(vec![change]));
            assert_eq!((found(&after), after.filters().len()), (Some(winner), 2), "{kind:?}");
        }
    }
}

#[test]
fn alternatives_of_a_binding_are_found_and_removed_together() {
    for kind in TableKind::ALL {
        let mut tables = GateTables::default();
        tables.set_kind(GateId(2), kind);
        let text = "dport 80,443 or not dport 0-1000";
        let found =
            |table: &GateTable| [80, 81, 443, 2000].map(|port| table.lookup(&packet(port)).map(|id| id.0));
        let both = table(tables.publish(vec![bind(0, text, Action::Drop), bind(1, "*", instance())]));
        assert_eq!(found(&both), [Some(0), Some(1), Some(0), Some(0)], "{kind:?}");
        assert_eq!(found(&both.copy(TableKind::Linear)), [Some(0), Some(1), Some(0), Some(0)], "{kind:?}");
        let one = table(tables.publish(vec![unbind(0, text)]));
        assert_eq!((found(&one), one.filters().len()), ([Some(1); 4], 1), "{kind:?}");
    }
}

#[test]
fn workers_keep_their_view_during_control_changes() {
    for kind in TableKind::ALL {
        let mut tables = GateTables::default();
        tables.set_kind(GateId(2), kind);
        let first = table(tables.publish(vec![bind(0, "dport 80", instance())]));
        let second = table(tables.publish(vec![bind(1, "dport 81", instance())]));
        // A worker still reads both tables, so the third change needs a copy.
        let third = table(tables.publish(vec![unbind(0, "dport 80"), bind(2, "*", instance())]));
        let found = |table: &GateTable| [80, 81, 82].map(|port| table.lookup(&packet(port)).map(|id| id.0));
        assert_eq!(found(&first), [Some(0), None, None], "{kind:?}");
        assert_eq!(found(&second), [Some(0), Some(1), None]);
        assert_eq!(found(&third), [Some(2), Some(1), Some(2)]);
        drop((first, second, third));
        let fourth = table(tables.publish(vec![unbind(2, "*")]));
        assert_eq!(found(&fourth), [None, Some(1), None]);
        assert_eq!(tables.table(GateId(2)).map(GateTable::kind), Some(kind));
    }
}

#[test]
fn a_gate_gets_another_kind_of_table_while_workers_read_the_old_one() {
    let mut tables = GateTables::default();
    let old = table(tables.publish(vec![bind(0, "dport 80", instance())]));
    let mut kinds = TableKind::ALL.into_iter().filter(|kind| *kind != TableKind::default());
    assert!(kinds.all(|kind| {
        let new = tables.set_kind(GateId(2), kind).unwrap();
        assert!(tables.set_kind(GateId(2), kind).is_none());
        new.kind() == kind && new.lookup(&packet(80)) == old.lookup(&packet(80))
    }));
    let last = table(tables.publish(vec![bind(1, "dport 81", instance())]));
    assert_eq!([80, 81].map(|port| last.lookup(&packet(port)).map(|id| id.0)), [Some(0), Some(1)]);
}

/// Tables of three successive gates: those of control, and those of a worker that may still have older links.
struct Gates {
    control: GateTables,
    worker: [WorkerTable; 3],
}

impl Gates {
    /// Adds a filter to a gate, or removes it (`there` is false), in control and at the worker.
    fn change(&mut self, gate: usize, binding: u32, filter: &str, there: bool) {
        let (id, binding, filter) = (GateId(gate as u8), BindingId(binding), compiled(filter));
        let change = if there {
            PluginChange::Unbind { binding, gate: id, filter }
        } else {
            let (action, call_limits) = (instance(), CallLimits::default());
            PluginChange::Bind { binding, gate: id, filter, priority: 0, action, call_limits }
        };
        self.worker[gate].table = table(self.control.publish(vec![change]));
    }

    /// Makes links between the gates. The worker receives only the links of the gates whose bits are set in
    /// `heard`.
    fn link(&mut self, heard: u8) {
        for (gate, table) in self.control.link(&[0, 1, 2].map(GateId)) {
            if heard >> gate.0 & 1 == 1 {
                self.worker[usize::from(gate.0)] = table;
            }
        }
    }

    /// Returns the bindings found at each gate, with links from the previous gate and without.
    fn found(&self, candidates: &[Candidate]) -> [Vec<Vec<Option<BindingId>>>; 2] {
        let none = || vec![None; candidates.len()];
        let mut behind = vec![none()];
        self.worker[0].lookup_batch(candidates, &mut behind[0]);
        for gate in 1..3 {
            let mut found = none();
            let (previous, before) = (&self.worker[gate - 1], &behind[gate - 1]);
            self.worker[gate].lookup_batch_behind(previous, before, candidates, &mut found);
            behind.push(found);
        }
        let each = self.worker.iter();
        let alone = each.map(|table| candidates.iter().map(|packet| table.lookup(packet)).collect());
        [behind, alone.collect()]
    }
}

proptest! {
    /// Adds and removes filters at all gates. Also makes links from time to time, which don't always reach
    /// the worker. Lookups with links must equal lookups without.
    #[test]
    fn linked_gates_match_like_single_gates(
        steps in prop::collection::vec((0usize..3, 0u32..12, any::<Option<u8>>()), 1..60),
    ) {
        let mut gates = Gates { control: GateTables::default(), worker: Default::default() };
        for gate in 0..3 {
            gates.control.set_kind(GateId(gate), TableKind::Dag(PrefixMatchKind::default()));
        }
        let text = |number: u32| match number % 4 {
            0 => format!("dport {}-{}", 80 + number, 83 + number),
            1 => format!("src 10.0.0.{}/31 dport {}", number / 4 * 2, 80 + number),
            2 => format!("src 10.0.0.0/30 proto tcp dport {}", 80 + number),
            _ => format!("dst 10.0.0.2 sport {number}"),
        };
        let mut candidates: Vec<Candidate> = (78..96).map(packet).collect();
        candidates.push(Candidate { exceptions: Exceptions::FRAGMENT, ..packet(0) });
        let mut there = [[false; 12]; 3];
        for (gate, number, link) in steps {
            let known = &mut there[gate][number as usize];
            gates.change(gate, number, &text(number), *known);
            *known = !*known;
            if let Some(heard) = link {
                gates.link(heard);
            }
            let [behind, alone] = gates.found(&candidates);
            prop_assert_eq!(behind, alone);
        }
    }
}

#[test]
fn links_follow_the_current_filters() {
    let mut gates = Gates { control: GateTables::default(), worker: Default::default() };
    for gate in 0..3 {
        gates.control.set_kind(GateId(gate), TableKind::Dag(PrefixMatchKind::default()));
    }
    for (gate, port) in [0, 1].into_iter().flat_map(|gate| (80..90).map(move |port| (gate, port))) {
        gates.change(gate, port, &format!("src 10.0.0.1 dst 10.0.0.2 proto tcp dport {port}"), false);
    }
    assert!(gates.control.links(GateId(1)).is_none());
    gates.link(0xff);
    let links = gates.control.links(GateId(1)).unwrap();
    assert_eq!((links.previous(), links.links().filters(), links.links().ahead()), (GateId(0), 10, 10));
    assert!(links.links().memory() > 40 && gates.control.links(GateId(2)).is_none());
    assert!(gates.control.link(&[0, 1, 2].map(GateId)).is_empty(), "nothing changed");
    gates.change(0, 80, "src 10.0.0.1 dst 10.0.0.2 proto tcp dport 80", true);
    assert!(gates.control.links(GateId(1)).is_none());
    gates.link(0xff);
    assert_eq!(gates.control.links(GateId(1)).unwrap().links().filters(), 9);
    // Other kinds of tables have no links.
    gates.control.set_kind(GateId(1), TableKind::TupleSpace);
    assert!(gates.control.link(&[0, 1, 2].map(GateId)).is_empty());
    assert!(gates.control.links(GateId(1)).is_none());
}

#[test]
fn table_names_round_trip() {
    assert!(TableKind::ALL.iter().all(|kind| kind.name().parse() == Ok(*kind)));
    assert_eq!("auto".parse(), Ok(TableKind::default()));
    assert!("dagg".parse::<TableKind>().unwrap_err().contains("dag-patricia"));
}

#[test]
fn a_packet_without_readable_ports_does_not_pass_a_filter_that_refuses_ports() {
    let mut tables = GateTables::default();
    let drops = vec![bind(0, "proto tcp dport 23", Action::Drop), bind(1, "proto tcp", instance())];
    let table = table(tables.publish(drops));
    let mut cut = Candidate { exceptions: Exceptions::CUT, ..packet(0) };
    cut.key.source_port = 0;
    assert_eq!(table.lookup(&packet(23)), Some(BindingId(0)));
    assert_eq!(table.lookup(&packet(24)), Some(BindingId(1)));
    assert_eq!(table.lookup(&cut), Some(BindingId(0)));
}

#[test]
fn varying_fields_distinguish_only_flows_that_such_filters_can_match() {
    let mut tables = GateTables::default();
    let filters =
        vec![bind(0, "proto tcp dport 80 flags syn/syn+ack", instance()), bind(1, "dport 81", instance())];
    let one = table(tables.publish(filters));
    assert_eq!([80, 81].map(|port| one.varying_mask(&packet(port).key) != 0), [true, false]);
    let none = table(tables.publish(vec![unbind(0, "proto tcp dport 80 flags syn/syn+ack")]));
    assert_eq!(none.varying_mask(&packet(80).key), 0);
}
