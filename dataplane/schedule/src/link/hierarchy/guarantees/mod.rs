//! Check of guarantees: the rate that serves a node must cover the real-time curves below it.

mod curves;
#[expect(clippy::indexing_slicing, reason = "notes on nodes, of which one is made for each node")]
mod served;

pub(super) use self::curves::check_curves;
use self::curves::{check_slopes, check_sum};
pub(super) use self::served::Served;
use super::nodes::Kind;
use super::tree::Tree;
use super::{GuaranteeLimit, ScheduleError};
use crate::arena::NONE;
use crate::link::discipline::Discipline;
use crate::link::hfsc::{Curve, Curves, HIERARCHY_ROOT};
use crate::{Item, NodeId, Rate};

/// Guarantees of a tree's classes and leaves, below a link.
pub(super) struct Guarantees<'a, T> {
    pub tree: &'a Tree<T>,
    /// Rate of the link; `None` for no limit.
    pub link: Option<Rate>,
}

impl<T: Item> Guarantees<'_, T> {
    /// Checks that the rate of each node covers the guarantees below it: the curves of each H-FSC hierarchy,
    /// the guarantees below each priority scheduler, and the capacity of each leaf with a queue per flow.
    /// Subtrees that stand apart from the root are checked against the link's rate. Errors name `node` as the
    /// changed node.
    pub fn check(&self, node: NodeId) -> Result<(), ScheduleError> {
        let served = self.served();
        for (index, entry) in self.tree.nodes.iter() {
            if let Kind::FlowQueues(leaf) = entry.kind {
                let capacity = self.tree.leaves.flow_queues[leaf].settings().capacity;
                check_capacity(NodeId(index), capacity, served.by(index))?;
            }
            let Kind::Hfsc { hierarchy, class: HIERARCHY_ROOT } = entry.kind else { continue };
            let classes = &self.tree.disciplines.hierarchies[hierarchy];
            let available = served.by(classes.root_node());
            for (index, class) in classes.classes() {
                let (child, curves) = (NodeId(classes.child(index)), class.curves());
                if let Some(available) = available {
                    check_slopes(child, &curves, available)?;
                }
                self.check_bucket(child, &curves)?;
                // The curves of a leaf class were compared with each other when they were set.
                if curves.upper_limit.is_some() && class.inner != NONE {
                    self.check_limit(node, hierarchy, index)?;
                }
            }
            self.check_link(node, hierarchy, available)?;
        }
        let priorities = self.tree.nodes.iter().filter(|(_, node)| matches!(node.kind, Kind::Priority(_)));
        for (index, _) in priorities {
            self.check_priority(node, index, served.by(index))?;
        }
        Ok(())
    }

    /// Checks the guarantees that a new place or share of a node may violate.
    pub fn check_around(&self, node: NodeId) -> Result<(), ScheduleError> {
        let entry = &self.tree.nodes[node.0];
        let is_plain = !self.tree.disciplines.has_children(entry.kind) && !self.has_capacity(entry.kind);
        match self.tree.nodes.parent_kind(entry) {
            None | Some(Kind::Priority(_)) if is_plain => Ok(()),
            Some(Kind::Hfsc { hierarchy, .. }) if is_plain => self.check_class(node, hierarchy, entry.slot),
            _ => self.check(node),
        }
    }

    /// Whether flows of a leaf may reserve parts of the leaf's rate.
    fn has_capacity(&self, kind: Kind) -> bool {
        let Kind::FlowQueues(index) = kind else { return false };
        self.tree.leaves.flow_queues[index].settings().capacity.is_some()
    }

    /// Checks that a leaf's capacity for reservations does not exceed the rate that serves the leaf.
    pub fn check_leaf(&self, node: NodeId, capacity: Option<Rate>) -> Result<(), ScheduleError> {
        check_capacity(node, capacity, self.served().by(node.0))
    }

    /// Returns the rates that serve the nodes.
    fn served(&self) -> Served {
        Served::of(&self.tree.nodes, &self.tree.disciplines, self.link)
    }

    /// Checks that all guarantees below a priority scheduler together fit into the scheduler's rate. A single
    /// child may use the whole rate.
    fn check_priority(
        &self,
        node: NodeId,
        priority: u32,
        available: Option<Rate>,
    ) -> Result<(), ScheduleError> {
        let Some(available) = available else { return Ok(()) };
        let mut curves = Vec::new();
        self.collect_real_time(priority, &mut curves);
        let limit = match self.tree.nodes[priority].parent {
            NONE => GuaranteeLimit::LinkAbove(NodeId(priority)),
            _ => GuaranteeLimit::AvailableTo(NodeId(priority)),
        };
        check_sum(node, curves, Curve::linear(available), limit)
    }

    /// Collects the real-time curves of all hierarchies below a node that share the node's rate.
    fn collect_real_time(&self, node: u32, curves: &mut Vec<Curve>) {
        match self.tree.nodes[node].kind {
            Kind::Hfsc { hierarchy, .. } => {
                let classes = self.tree.disciplines.hierarchies[hierarchy].classes();
                curves.extend(classes.filter_map(|(_, class)| class.curves().real_time));
            }
            Kind::Priority(_) | Kind::RoundRobin(_) | Kind::TokenBucket(_) => {
                self.tree.nodes.children(node).for_each(|child| self.collect_real_time(child, curves));
            }
            Kind::Fifo(_) | Kind::FlowQueues(_) | Kind::FqCodel(_) | Kind::Vacant => {}
        }
    }

    /// Checks the guarantees below each priority scheduler that is an ancestor of a hierarchy.
    fn check_priorities_above(&self, node: NodeId, root: u32, served: &Served) -> Result<(), ScheduleError> {
        for above in self.tree.nodes.path_up(NodeId(root)).skip(1) {
            match self.tree.nodes[above.0].kind {
                Kind::Priority(_) => self.check_priority(node, above.0, served.by(above.0))?,
                // The curve of this class guarantees the rate of the subtree, so ancestors need no check.
                Kind::Hfsc { .. } => return Ok(()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Checks the guarantees that a new or changed class may violate.
    pub fn check_class(&self, node: NodeId, hierarchy: u32, class: u32) -> Result<(), ScheduleError> {
        let served = self.served();
        let classes = &self.tree.disciplines.hierarchies[hierarchy];
        let curves = classes.curves(class);
        let root = classes.root_node();
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

    /// If the node of a class is a token bucket, checks that the bucket's rate and burst cover the class's
    /// guarantee.
    fn check_bucket(&self, node: NodeId, curves: &Curves) -> Result<(), ScheduleError> {
        let (Some(real_time), Kind::TokenBucket(index)) = (curves.real_time, self.tree.nodes[node.0].kind)
        else {
            return Ok(());
        };
        let (rate, burst) = self.tree.disciplines.token_buckets[index].settings();
        // The whole burst may leave within a nanosecond.
        let at_once = Rate(u64::from(burst).saturating_mul(8_000_000_000));
        let limit = Curve { first: at_once, duration: 1, then: rate };
        check_sum(node, vec![real_time], limit, GuaranteeLimit::OwnTokenBucket)
    }

    /// Checks that the guarantees below a class stay below its upper limit, if it has one.
    fn check_limit(&self, node: NodeId, hierarchy: u32, class: u32) -> Result<(), ScheduleError> {
        let classes = &self.tree.disciplines.hierarchies[hierarchy];
        let Some(limit) = classes.curves(class).upper_limit else { return Ok(()) };
        let kind = GuaranteeLimit::UpperLimitOf(NodeId(classes.child(class)));
        check_sum(node, self.real_time_below(hierarchy, class), limit, kind)
    }

    /// Checks that all guarantees of a hierarchy together stay below the rate that serves the hierarchy.
    fn check_link(&self, node: NodeId, hierarchy: u32, available: Option<Rate>) -> Result<(), ScheduleError> {
        let classes = &self.tree.disciplines.hierarchies[hierarchy];
        let root = classes.root_node();
        let Some(available) = available else { return Ok(()) };
        let all = classes.classes().filter_map(|(_, class)| class.curves().real_time).collect();
        let limit = if self.tree.nodes[root].parent == NONE {
            GuaranteeLimit::Link
        } else {
            GuaranteeLimit::Available
        };
        check_sum(node, all, Curve::linear(available), limit)
    }

    /// Returns the real-time curves of the leaves at or below a class.
    fn real_time_below(&self, hierarchy: u32, top: u32) -> Vec<Curve> {
        let classes = &self.tree.disciplines.hierarchies[hierarchy];
        let below = |mut index: u32| {
            while index != NONE && index != top {
                index = classes.parent(index);
            }
            index == top
        };
        let leaves = classes.classes().filter(|(index, _)| below(*index));
        leaves.filter_map(|(_, class)| class.curves().real_time).collect()
    }
}

/// Checks that a leaf's capacity for reservations does not exceed the rate that serves the leaf.
fn check_capacity(
    node: NodeId,
    capacity: Option<Rate>,
    available: Option<Rate>,
) -> Result<(), ScheduleError> {
    let above = capacity.zip(available).filter(|(own, available)| own > available);
    let Some((own, available)) = above else { return Ok(()) };
    let text = format!("its rate {own} exceeds the rate available to the node, {available}");
    Err(ScheduleError::Settings { node, text })
}
