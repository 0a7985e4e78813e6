//! Tests of a DAG with gate links, compared with the linear oracle.

use std::net::Ipv4Addr;

use millrace_packet::FlowKey;
use millrace_units::PortId;

use super::*;
use crate::filter::tests::compiled;
use crate::prefix_match::{Accesses, NotCounted};

/// Returns links from the filters of table `before` into the DAG of table `after`. The number of a filter is
/// its id.
fn links(before: &DagTable<u64>, after: &DagTable<u64>) -> Links {
    Links::new(after, before.entries().map(|entry| (entry.id.0 as usize, &entry.filter)))
}

proptest! {
    /// Adds filters to one of two gates, or to both, and removes some. Rebuilds the links after each change.
    #[test]
    fn linked_table_matches_like_a_linear_table(
        config in any_config(),
        steps in prop::collection::vec((any_filter(), 0i32..3, 1u8..4, any::<Option<Index>>()), 1..25),
        candidates in prop::collection::vec(any_candidate(), 20),
    ) {
        let mut gates = [DagTable::new(config), DagTable::new(config)];
        let mut oracles: [LinearOracle<u64>; 2] = Default::default();
        for (id, (filter, priority, chosen, removed)) in (0..).zip(&steps) {
            let filter = filter.compile(resolve).unwrap();
            for gate in (0..2).filter(|gate| chosen >> gate & 1 != 0) {
                let entry = Entry { id: FilterId(id), filter, priority: *priority, value: id };
                prop_assert!(gates[gate].restore(entry) && oracles[gate].restore(entry));
            }
            if let Some(removed) = removed {
                let (gate, id) = (removed.index(2), FilterId(removed.index(steps.len()) as u64));
                prop_assert_eq!(gates[gate].remove(id), oracles[gate].remove(id));
            }
            let links = links(&gates[0], &gates[1]);
            prop_assert_eq!(links.filters(), gates[0].len());
            for candidate in &candidates {
                let before = gates[0].lookup(candidate).map(|(id, _)| id.0 as usize);
                let found = gates[1].lookup_linked(&links, before, candidate);
                prop_assert_eq!(found, oracles[1].lookup(candidate));
            }
        }
    }
}

proptest! {
    /// A lookup that starts at the target of a rule must find the same filter as a lookup from the root. The
    /// rules are narrower or wider than the filters of the DAG.
    #[test]
    fn packets_of_a_filter_reach_the_node_of_its_pointer(
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
    let mut table = DagTable::default();
    for flow in 0..FLOWS {
        let key = key(flow);
        let text = format!(
            "src {} dst {} proto udp sport {} dport {}",
            key.source(),
            key.destination(),
            key.source_port,
            key.destination_port
        );
        table.insert(compiled(&text), 0, u64::from(flow));
    }
    let links = links(&table, &table);
    assert_eq!((links.filters(), links.ahead()), (FLOWS.into(), FLOWS.into()));
    let (mut alone, mut linked) = (Accesses::default(), Accesses::default());
    for flow in 0..FLOWS {
        let candidate = Candidate::plain(key(flow));
        let found = table.lookup_counted(&candidate, &mut alone).map(|(_, value)| *value);
        let before = Some(usize::from(flow));
        let again = table.lookup_linked_counted(&links, before, &candidate, &mut linked);
        assert_eq!((found, again.map(|(_, value)| *value)), (Some(flow.into()), Some(flow.into())));
    }
    println!("accesses for {FLOWS} packets: {} by the whole way, {} by links", alone.0, linked.0);
    assert!(2 * linked.0 < alone.0);
}
