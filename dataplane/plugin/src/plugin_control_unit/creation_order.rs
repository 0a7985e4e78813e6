//! Order of instances by the names in their settings: an instance is created after the instances that it names.

use std::collections::{HashMap, HashSet};

use millrace_plugin_abi::Plugin;
use serde_json::{Map, Value};

use super::Error;
use crate::declaration::settings::instances_named;

/// Instances, each with the instances that its settings name.
#[derive(Debug, Default)]
pub struct InstanceNames<'a> {
    /// Instances in the order of their addition.
    instances: Vec<&'a str>,
    /// Names in the settings of each instance.
    named: HashMap<&'a str, Vec<String>>,
}

impl<'a> InstanceNames<'a> {
    /// Adds an instance with its settings.
    pub fn add(&mut self, instance: &'a str, plugin: &dyn Plugin, settings: &Map<String, Value>) {
        self.add_named(instance, instances_named(plugin, settings));
    }

    fn add_named(&mut self, instance: &'a str, named: Vec<String>) {
        self.instances.push(instance);
        self.named.insert(instance, named);
    }

    /// Returns the order in which the instances can be created. It differs from the order of their addition only where
    /// an instance names a later one. Names of other instances have no effect.
    ///
    /// Depth-first search (Tarjan, 1976), with a stack of its own: chains of names may be long.
    pub fn order(&self) -> CreationOrder<'a> {
        let mut order = CreationOrder::default();
        let (mut entered, mut left) = (HashSet::new(), HashSet::new());
        let mut path = Vec::new();
        for first in self.instances.iter().copied() {
            if entered.insert(first) {
                path.push((first, self.named(first)));
            }
            while let Some((instance, named)) = path.last_mut() {
                let instance = *instance;
                let Some(next) = named.next() else {
                    order.instances.push(instance);
                    left.insert(instance);
                    path.pop();
                    continue;
                };
                if entered.insert(next) {
                    path.push((next, self.named(next)));
                } else if !left.contains(next) {
                    let cycle = path.iter().map(|(instance, _)| *instance);
                    order.cycles.push(cycle.skip_while(|instance| *instance != next).collect());
                }
            }
        }
        order
    }

    /// Returns the added instances that an instance names.
    fn named(&self, instance: &str) -> impl Iterator<Item = &'a str> {
        let named = self.named.get(instance).into_iter().flatten();
        named.filter_map(move |name| self.named.get_key_value(name.as_str()).map(|(instance, _)| *instance))
    }
}

/// Order in which instances can be created. In the reverse order, they can be removed.
#[derive(Debug, Default)]
pub struct CreationOrder<'a> {
    instances: Vec<&'a str>,
    /// Cycles. Each instance of a cycle names the next one, and the last names the first. Each name of an instance that
    /// comes later in the order is part of one of these cycles.
    pub cycles: Vec<Vec<&'a str>>,
}

impl<'a> CreationOrder<'a> {
    /// Returns the places of the instances in the order, by name.
    pub fn places(&self) -> HashMap<&'a str, usize> {
        self.instances.iter().copied().zip(0..).collect()
    }
}

/// Returns the error for a cycle of instances.
pub fn cycle_error(cycle: &[&str]) -> Error {
    let steps = cycle.iter().zip(cycle.iter().cycle().skip(1));
    let names: Vec<_> = steps.map(|(one, named)| format!("{one:?} names {named:?}")).collect();
    Error::Cycle { names: names.join(", ") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names<'a>(instances: &[(&'a str, &[&str])]) -> InstanceNames<'a> {
        let mut all = InstanceNames::default();
        for (instance, named) in instances {
            all.add_named(instance, named.iter().copied().map(str::to_owned).collect());
        }
        all
    }

    #[test]
    fn named_instance_comes_first_and_all_others_keep_their_order() {
        let order = names(&[("d", &[]), ("b", &["c", "elsewhere"]), ("a", &["b", "d"]), ("c", &[])]).order();
        assert_eq!(order.instances, ["d", "c", "b", "a"]);
        assert!(order.cycles.is_empty());
        assert_eq!(order.places().get("a"), Some(&3));
        assert_eq!(names(&[("b", &[]), ("a", &["b"]), ("c", &[])]).order().instances, ["b", "a", "c"]);
    }

    #[test]
    fn cycles_are_named() {
        let order =
            names(&[("x", &["a"]), ("a", &["b"]), ("b", &["c"]), ("c", &["a"]), ("s", &["s"])]).order();
        assert_eq!(order.cycles, [vec!["a", "b", "c"], vec!["s"]]);
        assert_eq!(order.instances.len(), 5);
        let refused = cycle_error(&order.cycles[0]).to_string();
        assert!(refused.contains("\"a\" names \"b\", \"b\" names \"c\", \"c\" names \"a\""), "{refused}");
        assert!(cycle_error(&order.cycles[1]).to_string().contains(": \"s\" names \"s\";"));
    }

    #[test]
    fn long_chain_needs_no_deep_stack() {
        let known: Vec<String> = (0..65_536).map(|number| format!("i{number}")).collect();
        let mut all = InstanceNames::default();
        for (number, instance) in known.iter().enumerate() {
            all.add_named(instance, known.get(number + 1).cloned().into_iter().collect());
        }
        let order = all.order();
        assert!(order.instances.iter().eq(known.iter().rev()) && order.cycles.is_empty());
    }

    proptest! {
        #[test]
        fn only_names_in_cycles_are_those_of_later_instances(
            numbers in prop::collection::vec(prop::collection::vec(0..12_usize, 0..3), 1..12),
        ) {
            let known: Vec<String> = (0..12).map(|number| format!("i{number}")).collect();
            let mut all = InstanceNames::default();
            for (instance, named) in known.iter().zip(&numbers) {
                all.add_named(instance, named.iter().map(|number| known[*number].clone()).collect());
            }
            let order = all.order();
            let places = order.places();
            prop_assert_eq!(places.len(), numbers.len());
            for (instance, named) in known.iter().zip(&numbers) {
                for named in named.iter().map(|number| known[*number].as_str()) {
                    let Some(place) = places.get(named) else { continue };
                    let follows = |cycle: &Vec<&str>| {
                        let next = cycle.iter().cycle().skip(1);
                        cycle.iter().zip(next).any(|(one, next)| one == instance && *next == named)
                    };
                    let is_earlier = *place < places[instance.as_str()];
                    prop_assert!(is_earlier || order.cycles.iter().any(follows), "{instance} {named}");
                }
            }
            // Each instance of a cycle really names the next one.
            for cycle in &order.cycles {
                for (one, next) in cycle.iter().zip(cycle.iter().cycle().skip(1)) {
                    prop_assert!(all.named(one).any(|named| named == *next), "{one} {next}");
                }
            }
        }
    }
}
