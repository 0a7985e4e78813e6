//! Check of guarantees: the rate that serves a node must cover the real-time curves below it.

use super::levels::Served;
use super::node::Kind;
use super::{LinkScheduler, NodeId, ScheduleError};
use crate::arena::NONE;
use crate::link::discipline::Discipline;
use crate::link::hfsc::{Curve, Curves, HIERARCHY_ROOT};
use crate::{Item, Rate};

/// Nanobits of one byte: 8 bits times 10^9. Slopes times nanoseconds are in this unit.
const NANOBITS: i128 = 8_000_000_000;

/// Checks the curves of a class on their own.
pub(super) fn check_curves(node: NodeId, curves: &Curves, is_inner: bool) -> Result<(), ScheduleError> {
    let refuse = |text: &str| Err(ScheduleError::Settings { node, text: text.to_owned() });
    if is_inner && curves.real_time.is_some() {
        return refuse(
            "a class with children can't have a real-time curve: only leaf classes have guarantees",
        );
    }
    if is_inner && curves.link_sharing.is_none() {
        return refuse("a class with children needs a link-sharing curve");
    }
    if curves.real_time.is_none() && curves.link_sharing.is_none() {
        return refuse("a class needs a real-time or a link-sharing curve, or both");
    }
    if curves.upper_limit.is_some() && curves.link_sharing.is_none() {
        return refuse("an upper-limit curve needs a link-sharing curve");
    }
    for (name, curve) in named(curves) {
        if curve.then.0 == 0 {
            let text =
                format!("the second slope of its {name} curve must be above 0, or the class would stop");
            return Err(ScheduleError::Settings { node, text });
        }
    }
    if let (Some(real_time), Some(limit)) = (curves.real_time, curves.upper_limit) {
        check_sum(node, vec![real_time], limit, "its own upper limit".to_owned())?;
    }
    Ok(())
}

fn named(curves: &Curves) -> impl Iterator<Item = (&'static str, Curve)> {
    let all = [
        ("real-time", curves.real_time),
        ("link-sharing", curves.link_sharing),
        ("upper-limit", curves.upper_limit),
    ];
    all.into_iter().filter_map(|(name, curve)| Some((name, curve?)))
}

/// Checks that the sum of `curves` stays below `limit` at all times. All curves are piecewise straight, so
/// the check covers the points where a curve bends, and the slopes after the last point.
fn check_sum(node: NodeId, mut curves: Vec<Curve>, limit: Curve, name: String) -> Result<(), ScheduleError> {
    curves.sort_by_key(|curve| curve.duration);
    let mut sum = Sum::default();
    for curve in &curves {
        sum.first += i128::from(curve.first.0);
    }
    let refusal = |sum: &Sum, time: u64, long_run: i128| ScheduleError::RealTimeSum {
        node,
        promised: u64::try_from((sum.at(time) + NANOBITS - 1) / NANOBITS).unwrap_or(u64::MAX),
        time,
        long_run: Rate(u64::try_from(long_run).unwrap_or(u64::MAX)),
        limit: name.clone(),
        available: limit.bytes_after(time),
        rate: limit.then,
    };
    let long_run: i128 = curves.iter().map(|curve| i128::from(curve.then.0)).sum();
    let most = |time: u64| nanobits(&limit, time);
    let mut bent = limit.duration == 0;
    for curve in &curves {
        if !bent && limit.duration <= curve.duration {
            bent = true;
            if sum.at(limit.duration) > most(limit.duration) {
                return Err(refusal(&sum, limit.duration, long_run));
            }
        }
        if sum.at(curve.duration) > most(curve.duration) {
            return Err(refusal(&sum, curve.duration, long_run));
        }
        sum.bend(curve);
    }
    let late = limit.duration.max(curves.last().map_or(0, |curve| curve.duration));
    if sum.at(late) > most(late) {
        return Err(refusal(&sum, late, long_run));
    }
    if long_run > i128::from(limit.then.0) {
        return Err(refusal(&sum, late.saturating_add(1_000_000_000), long_run));
    }
    Ok(())
}

fn nanobits(curve: &Curve, time: u64) -> i128 {
    let first = time.min(curve.duration);
    i128::from(curve.first.0) * i128::from(first) + i128::from(curve.then.0) * i128::from(time - first)
}

/// Sum of several curves after a time: a constant and slopes, in nanobits.
#[derive(Default)]
struct Sum {
    constant: i128,
    /// Sum of the slopes of the curves that are in their first piece.
    first: i128,
    /// Sum of the slopes of the curves that are in their second piece.
    then: i128,
}

impl Sum {
    fn at(&self, time: u64) -> i128 {
        self.constant.saturating_add((self.first + self.then).saturating_mul(time.into()))
    }

    /// Moves a curve from its first to its second piece.
    fn bend(&mut self, curve: &Curve) {
        let (first, then) = (i128::from(curve.first.0), i128::from(curve.then.0));
        self.first -= first;
        self.then += then;
        self.constant = self.constant.saturating_add((first - then).saturating_mul(curve.duration.into()));
    }
}

impl<T: Item> LinkScheduler<T> {
    /// Whether siblings go before a node: at a priority scheduler above it, another child has a lower level.
    pub(super) fn is_behind_others(&self, node: u32) -> bool {
        let mut index = node;
        while let Some(above) = self.nodes.find(self.nodes[index as usize].parent as usize) {
            if let Kind::Priority(priority) = above.kind
                && self.priorities.get(priority).first() != Some(index)
            {
                return true;
            }
            index = self.nodes[index as usize].parent;
        }
        false
    }

    /// Checks all guarantees against the rates that serve them: the curves of each H-FSC hierarchy, the
    /// guarantees below each priority scheduler, and the capacity of each leaf with a queue per flow. Trees
    /// apart from the root are checked against the link. Errors name `node`, the subject of the change.
    pub(super) fn check_promises(&self, node: NodeId) -> Result<(), ScheduleError> {
        if self.trusting || self.deferring {
            return Ok(());
        }
        let served = Served::of(self);
        for (index, entry) in self.nodes.iter().enumerate() {
            if let Kind::FlowQueues(leaf) = entry.kind {
                let capacity = self.flow_queues.get(leaf).settings.capacity;
                check_capacity(NodeId(index as u32), capacity, served.by(index as u32))?;
            }
            let Kind::Hfsc { hierarchy, class: HIERARCHY_ROOT } = entry.kind else { continue };
            let classes = self.hierarchies.get(hierarchy);
            let available = served.by(classes.child(HIERARCHY_ROOT));
            for (index, class) in classes.classes() {
                if let Some(available) = available {
                    check_slopes(NodeId(classes.child(index)), &class.curves(), available)?;
                }
                self.check_bucket(NodeId(classes.child(index)), &class.curves())?;
                // A leaf's own curves were checked against each other when they were set.
                if class.upper_limit.is_some() && class.inner != NONE {
                    self.check_limit(node, hierarchy, index)?;
                }
            }
            self.check_link(node, hierarchy, available)?;
        }
        let priorities =
            self.nodes.iter().enumerate().filter(|(_, node)| matches!(node.kind, Kind::Priority(_)));
        for (index, _) in priorities {
            self.check_priority(node, index as u32, served.by(index as u32))?;
        }
        Ok(())
    }

    /// Checks that all guarantees below a priority scheduler stay below its rate. Each child may use the
    /// whole rate, but not all of them at once.
    fn check_priority(
        &self,
        node: NodeId,
        priority: u32,
        available: Option<Rate>,
    ) -> Result<(), ScheduleError> {
        let Some(available) = available else { return Ok(()) };
        let mut curves = Vec::new();
        self.collect_real_time(priority, &mut curves);
        let name = match self.nodes[priority as usize].parent {
            NONE => format!("the link above node {priority}"),
            _ => format!("the rate available to node {priority}"),
        };
        check_sum(node, curves, Curve::linear(available), name)
    }

    /// Collects the real-time curves of all hierarchies below a node that share the node's rate.
    fn collect_real_time(&self, node: u32, curves: &mut Vec<Curve>) {
        match self.nodes[node as usize].kind {
            Kind::Hfsc { hierarchy, .. } => {
                let classes = self.hierarchies.get(hierarchy).classes();
                curves.extend(classes.filter_map(|(_, class)| class.real_time));
            }
            Kind::Priority(_) | Kind::RoundRobin(_) | Kind::TokenBucket(_) => {
                self.children(NodeId(node)).for_each(|child| self.collect_real_time(child.0, curves));
            }
            _ => {}
        }
    }

    /// Checks the guarantees below the priority schedulers above a hierarchy.
    fn check_priorities_above(&self, node: NodeId, root: u32, served: &Served) -> Result<(), ScheduleError> {
        for above in self.path_up(NodeId(root)).skip(1) {
            match self.nodes[above.0 as usize].kind {
                Kind::Priority(_) => self.check_priority(node, above.0, served.by(above.0))?,
                // The curve of this class guarantees its rate.
                Kind::Hfsc { .. } => return Ok(()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Checks the guarantees that an added or changed class may break.
    pub(super) fn check_class(&self, node: NodeId, hierarchy: u32, class: u32) -> Result<(), ScheduleError> {
        if self.trusting || self.deferring {
            return Ok(());
        }
        let served = Served::of(self);
        let classes = self.hierarchies.get(hierarchy);
        let curves = classes.curves(class);
        let root = classes.child(HIERARCHY_ROOT);
        if let Some(available) = served.by(root) {
            check_slopes(node, &curves, available)?;
        }
        if curves.upper_limit.is_some() {
            self.check_limit(node, hierarchy, class)?;
        }
        if curves.real_time.is_none() {
            return Ok(());
        }
        self.check_bucket(node, &curves)?;
        let mut above = classes.parent(class);
        while above != HIERARCHY_ROOT && above != NONE {
            self.check_limit(node, hierarchy, above)?;
            above = classes.parent(above);
        }
        self.check_link(node, hierarchy, served.by(root))?;
        self.check_priorities_above(node, root, &served)
    }

    /// Checks that the token bucket of a class, if it is one, lets its guarantee through.
    fn check_bucket(&self, node: NodeId, curves: &Curves) -> Result<(), ScheduleError> {
        let (Some(real_time), Kind::TokenBucket(index)) =
            (curves.real_time, self.nodes[node.0 as usize].kind)
        else {
            return Ok(());
        };
        let (rate, burst) = self.token_buckets.get(index).settings();
        // The whole burst within a nanosecond.
        let at_once = Rate(u64::from(burst).saturating_mul(8_000_000_000));
        let limit = Curve { first: at_once, duration: 1, then: rate };
        check_sum(node, vec![real_time], limit, "the rate of its own token bucket".to_owned())
    }

    /// Checks that the guarantees below a class stay below its upper limit, if it has one.
    fn check_limit(&self, node: NodeId, hierarchy: u32, class: u32) -> Result<(), ScheduleError> {
        let classes = self.hierarchies.get(hierarchy);
        let Some(limit) = classes.curves(class).upper_limit else { return Ok(()) };
        let name = format!("the upper limit of node {}", classes.child(class));
        check_sum(node, self.real_time_below(hierarchy, class), limit, name)
    }

    /// Checks that all guarantees of a hierarchy stay below the rate that serves it.
    fn check_link(&self, node: NodeId, hierarchy: u32, available: Option<Rate>) -> Result<(), ScheduleError> {
        let classes = self.hierarchies.get(hierarchy);
        let root = classes.child(HIERARCHY_ROOT);
        let Some(available) = available else { return Ok(()) };
        let all = classes.classes().filter_map(|(_, class)| class.real_time).collect();
        let name = if self.nodes[root as usize].parent == NONE {
            "the link"
        } else {
            "the rate available to its H-FSC scheduler"
        };
        check_sum(node, all, Curve::linear(available), name.to_owned())
    }

    /// Returns the real-time curves of the leaves at or below a class.
    fn real_time_below(&self, hierarchy: u32, top: u32) -> Vec<Curve> {
        let classes = self.hierarchies.get(hierarchy);
        let below = |mut index: u32| {
            while index != NONE && index != top {
                index = classes.parent(index);
            }
            index == top
        };
        let leaves = classes.classes().filter(|(index, _)| below(*index));
        leaves.filter_map(|(_, class)| class.real_time).collect()
    }
}

/// Checks that the capacity for reservations of a leaf does not exceed the rate that serves the leaf.
pub(super) fn check_capacity(
    node: NodeId,
    capacity: Option<Rate>,
    available: Option<Rate>,
) -> Result<(), ScheduleError> {
    let above = capacity.zip(available).filter(|(own, available)| own > available);
    let Some((own, available)) = above else { return Ok(()) };
    let text = format!("its rate {own} exceeds the rate available to the node, {available}");
    Err(ScheduleError::Settings { node, text })
}

fn check_slopes(node: NodeId, curves: &Curves, available: Rate) -> Result<(), ScheduleError> {
    for (name, curve) in named(curves) {
        let slope = if curve.duration > 0 { curve.first.max(curve.then) } else { curve.then };
        if slope > available {
            return Err(ScheduleError::CurveAboveLink { node, curve: name, slope, available });
        }
    }
    Ok(())
}
