//! Linked gates against a linear table for each.

use std::net::Ipv4Addr;

use millrace_packet::FlowKey;
use millrace_units::PortId;

use super::*;
use crate::filter::tests::compiled;
use crate::prefix_match::{Accesses, NotCounted};

const GATES: usize = 3;

fn found<'a>(gates: &'a LinkedGates<u64>, candidate: &Candidate) -> Vec<Option<(FilterId, &'a u64)>> {
    let mut all = Vec::new();
    gates.lookup(candidate, |gate, found| {
        assert_eq!(gate, all.len());
        all.push(found);
    });
    all
}

proptest! {
    /// Each filter goes to some of the gates; in between gates are linked, and filters removed.
    #[test]
    fn linked_gates_find_what_a_linear_table_for_each_finds(
        config in any_config(),
        steps in prop::collection::vec((any_filter(), 0i32..3, 1u8..8, any::<bool>(), any::<Option<Index>>()), 1..25),
        candidates in prop::collection::vec(any_candidate(), 20),
    ) {
        let mut gates = LinkedGates::new(GATES, config);
        let mut oracles: [LinearOracle<u64>; GATES] = Default::default();
        for (id, (filter, priority, chosen, link, removed)) in (0..).zip(&steps) {
            let filter = filter.compile(resolve).unwrap();
            for gate in (0..GATES).filter(|gate| chosen >> gate & 1 != 0) {
                let entry = Entry { id: FilterId(id), filter, priority: *priority, value: id };
                prop_assert_eq!(gates.try_restore(gate, &mut Some(entry)), Ok(true));
                oracles[gate].restore(entry);
            }
            if let Some(removed) = removed {
                let (gate, id) = (removed.index(GATES), FilterId(removed.index(steps.len()) as u64));
                prop_assert_eq!(gates.remove(gate, id), oracles[gate].remove(id));
            }
            if *link {
                gates.link();
            }
            for candidate in &candidates {
                let expected: Vec<_> = oracles.iter().map(|oracle| oracle.lookup(candidate)).collect();
                prop_assert_eq!(found(&gates, candidate), expected);
            }
        }
    }
}

proptest! {
    /// The pointers by themselves: filters of another gate, that may be narrower or wider than those of the DAG.
    #[test]
    fn all_packets_of_a_filter_get_where_its_pointer_leads(
        addresses in prop::sample::select(PrefixMatchKind::ALL.to_vec()),
        filters in prop::collection::vec((any_filter(), 0i32..3), 1..30),
        others in prop::collection::vec(any_filter(), 40),
        candidates in prop::collection::vec(any_candidate(), 80),
    ) {
        let mut dag = DagTable::new(DagConfig { addresses, leaf_filters: 1, ..DagConfig::default() });
        for (filter, priority) in &filters {
            dag.insert(filter.compile(resolve).unwrap(), *priority, 0);
        }
        for other in others {
            let rule = Rule::new(FilterId(0), &other.compile(resolve).unwrap());
            let pointer = dag.graph.reach(&rule);
            for candidate in &candidates {
                let seen = Seen::new(candidate);
                if rule.matches(&seen) {
                    let found = dag.graph.find(pointer, &seen, &mut NotCounted);
                    prop_assert_eq!(found, dag.graph.find(dag.graph.root, &seen, &mut NotCounted));
                }
            }
        }
    }
}

#[test]
fn gates_with_the_same_flow_filters_cost_one_walk() {
    const FLOWS: u16 = 1000;
    let key = |flow: u16| {
        let (source, destination) =
            (Ipv4Addr::new(10, 0, 0, (flow % 7) as u8), Ipv4Addr::new(10, 0, 1, (flow % 11) as u8));
        FlowKey::v4(source, destination, 17, (flow, flow / 3), PortId(1))
    };
    let mut gates = LinkedGates::new(4, DagConfig::default());
    for flow in 0..FLOWS {
        let key = key(flow);
        let text = format!(
            "src {} dst {} proto udp sport {} dport {}",
            key.source(),
            key.destination(),
            key.source_port,
            key.destination_port
        );
        for gate in 0..gates.len() {
            let entry =
                Entry { id: FilterId(flow.into()), filter: compiled(&text), priority: 0, value: flow.into() };
            gates.try_restore(gate, &mut Some(entry)).unwrap();
        }
    }
    let accesses = |gates: &LinkedGates<u64>| {
        let mut accesses = Accesses::default();
        for flow in 0..FLOWS {
            let check = |_, found: Option<(FilterId, &u64)>| {
                assert_eq!(found.map(|(_, value)| *value), Some(flow.into()));
            };
            gates.lookup_counted(&Candidate::plain(key(flow)), check, &mut accesses);
        }
        f64::from(accesses.0) / f64::from(FLOWS)
    };
    let alone = accesses(&gates);
    gates.link();
    let linked = accesses(&gates);
    println!("accesses at {} gates: {alone:.2} by themselves, {linked:.2} linked", gates.len());
    assert!(linked < alone / 2.0);
}
