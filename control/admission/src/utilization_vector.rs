//! Utilisation vector: how much of each component is promised (VERA, section 4.4.1).
//!
//! Uses of most components add up. A statically scheduled processor has three components: the sum of its global
//! services, the largest of its flows' services, and the sum of both (V9).

use std::collections::BTreeMap;

use crate::component::{Component, Role};
use crate::impact::Impact;
use crate::part::Part;

/// Utilisation vector of a router with the limits of its components.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Utilization {
    used: Vec<Part>,
    limits: Vec<Part>,
    /// Uses by flows' services of each component of [`Role::Flow`], with the number of services of that use.
    flows: BTreeMap<usize, BTreeMap<Part, usize>>,
}

/// Component that lacks room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lack {
    /// Index of the component.
    pub component: usize,
    /// Missing share.
    pub missing: Part,
}

impl Utilization {
    /// Returns the vector of a router without services.
    #[must_use]
    pub fn new(components: &[Component]) -> Self {
        let flows = components.iter().enumerate().filter(|(_, component)| component.role == Role::Flow);
        Self {
            used: vec![Part::ZERO; components.len()],
            limits: components.iter().map(|component| component.limit).collect(),
            flows: flows.map(|(index, _)| (index, BTreeMap::new())).collect(),
        }
    }

    /// Returns the promised share of each component.
    #[must_use]
    pub fn used(&self) -> &[Part] {
        &self.used
    }

    /// Returns the limit of each component.
    #[must_use]
    pub fn limits(&self) -> &[Part] {
        &self.limits
    }

    fn of(&self, component: usize) -> Part {
        self.used.get(component).copied().unwrap_or_default()
    }

    /// Returns the additional use of each touched component, should a service come.
    pub(crate) fn growth<'a>(&'a self, impact: &'a Impact) -> impl Iterator<Item = (usize, Part)> + 'a {
        let flow = impact.flow.iter().flat_map(|&(component, part)| {
            let more = part.less(self.of(component));
            [(component, more), (component + 1, more)]
        });
        impact.sums.iter().copied().chain(flow)
    }

    /// Whether a service fits: no component would exceed its limit.
    #[must_use]
    pub fn fits(&self, impact: &Impact) -> bool {
        self.lack(impact).is_none()
    }

    /// Returns the component that lacks most room for a service; `None` where it fits.
    #[must_use]
    pub fn lack(&self, impact: &Impact) -> Option<Lack> {
        let missing = |(component, more): (usize, Part)| {
            let limit = self.limits.get(component).copied().unwrap_or_default();
            let missing = self.of(component).plus(more).map_or(more, |sum| sum.less(limit));
            (missing > Part::ZERO).then_some(Lack { component, missing })
        };
        self.growth(impact).filter_map(missing).max_by_key(|lack| lack.missing)
    }

    /// Adds a service, whether it fits or not.
    pub fn add(&mut self, impact: &Impact) {
        for &(component, part) in &impact.sums {
            self.change(component, |used| used.plus(part).unwrap_or(Part::UNBOUNDED));
        }
        if let Some((component, part)) = impact.flow {
            let more = part.less(self.of(component));
            *self.flows.entry(component).or_default().entry(part).or_default() += 1;
            for component in [component, component + 1] {
                self.change(component, |used| used.plus(more).unwrap_or(Part::UNBOUNDED));
            }
        }
    }

    /// Removes a service that was added.
    pub fn remove(&mut self, impact: &Impact) {
        for &(component, part) in &impact.sums {
            self.change(component, |used| used.less(part));
        }
        let Some((component, part)) = impact.flow else { return };
        let Some(flows) = self.flows.get_mut(&component) else { return };
        if let Some(count) = flows.get_mut(&part) {
            *count -= 1;
            if *count == 0 {
                flows.remove(&part);
            }
        }
        let largest = flows.last_key_value().map_or(Part::ZERO, |(part, _)| *part);
        let less = self.of(component).less(largest);
        for component in [component, component + 1] {
            self.change(component, |used| used.less(less));
        }
    }

    fn change(&mut self, component: usize, change: impl FnOnce(Part) -> Part) {
        if let Some(used) = self.used.get_mut(component) {
            *used = change(*used);
        }
    }

    /// Returns how much less of a component is used if a placed service goes.
    #[must_use]
    pub fn relief(&self, impact: &Impact, component: usize) -> Part {
        let sum =
            impact.sums.iter().find(|(index, _)| *index == component).map_or(Part::ZERO, |(_, part)| *part);
        let Some((flow, part)) = impact.flow.filter(|(flow, _)| component == *flow || component == flow + 1)
        else {
            return sum;
        };
        let Some(flows) = self.flows.get(&flow).filter(|flows| flows.get(&part) == Some(&1)) else {
            return sum;
        };
        let mut largest = flows.keys().rev().copied();
        let relief = match (largest.next(), largest.next()) {
            (Some(first), second) if first == part => part.less(second.unwrap_or_default()),
            _ => Part::ZERO,
        };
        sum.plus(relief).unwrap_or(sum)
    }

    /// Whether a placed service can change from one impact to another: no component of the new one would exceed its
    /// limit. A flow's largest use counts as if the service stayed.
    #[must_use]
    pub fn fits_instead(&self, from: &Impact, to: &Impact) -> bool {
        self.growth(to).all(|(component, more)| {
            let less =
                from.sums.iter().find(|(index, _)| *index == component).map_or(Part::ZERO, |(_, part)| *part);
            let limit = self.limits.get(component).copied().unwrap_or_default();
            self.of(component).less(less).plus(more).is_some_and(|sum| sum <= limit)
        })
    }
}
