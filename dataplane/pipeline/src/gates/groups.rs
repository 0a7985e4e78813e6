//! Groups the open packets of a batch by path. The packets of a path pass its instances together.

use std::ops::Range;

use millrace_packet::BATCH_SIZE;
use millrace_plugin::EMPTY_PATH;
use millrace_units::PathId;

/// Packets of a batch that have the same path, in the order of the batch.
#[derive(Debug)]
pub(crate) struct PathGroup {
    pub path: PathId,
    /// Indices of the packets in the batch.
    pub members: Vec<u16>,
    /// Bytes of the packets when they joined the group.
    pub bytes: u64,
    /// Whether `bytes` may be out of date, because instances have changed packets.
    pub has_changed: bool,
}

/// Groups of a batch, in the order of their first packets. Packets without bindings are in no group.
#[derive(Debug)]
pub(crate) struct Groups {
    groups: Vec<PathGroup>,
    /// Empty `members` vectors, whose memory later groups reuse.
    spare: Vec<Vec<u16>>,
    /// For each path number: the last batch that had packets of the path, and the index of the path's group
    /// in that batch.
    group_of: Vec<(u32, u32)>,
    /// Number of the current batch, from 1 on.
    batches: u32,
    /// Path of the packet that joined last in this batch, with its group's index; [`EMPTY_PATH`] before the
    /// first packet.
    last: (PathId, usize),
}

impl Default for Groups {
    fn default() -> Self {
        let last = (EMPTY_PATH, 0);
        Self { groups: Vec::new(), spare: Vec::new(), group_of: Vec::new(), batches: 1, last }
    }
}

impl Groups {
    /// Discards the groups of the previous batch.
    pub fn begin(&mut self) {
        self.spare.extend(self.groups.drain(..).map(|PathGroup { mut members, .. }| {
            members.clear();
            members
        }));
        self.last = (EMPTY_PATH, 0);
        self.batches = self.batches.checked_add(1).unwrap_or_else(|| {
            self.group_of.clear();
            1
        });
    }

    /// Adds a packet of `bytes` bytes to the group of its path, which must not be [`EMPTY_PATH`]. To be
    /// called in the order of packet indices.
    #[inline]
    pub fn join(&mut self, path: PathId, index: usize, bytes: usize) {
        let group = self.of(path);
        group.members.push(index as u16);
        group.bytes += bytes as u64;
    }

    /// Adds successive packets, of `bytes` bytes in all, to the group of their path.
    pub fn join_all(&mut self, path: PathId, indices: Range<usize>, bytes: u64) {
        let group = self.of(path);
        group.members.extend(indices.map(|index| index as u16));
        group.bytes += bytes;
    }

    /// Adds a packet after packets with higher indices have joined, and keeps the group in the order of
    /// indices. Returns whether the groups are still in the order of their first packets.
    pub fn join_late(&mut self, path: PathId, index: usize, bytes: usize) -> bool {
        let group = self.of(path);
        let place = group.members.partition_point(|member| usize::from(*member) < index);
        group.members.insert(place, index as u16);
        group.bytes += bytes as u64;
        place > 0
    }

    /// Returns the group of a path.
    #[inline]
    fn of(&mut self, path: PathId) -> &mut PathGroup {
        if self.last.0 != path {
            self.last = (path, self.find(path));
        }
        &mut self.groups[self.last.1]
    }

    /// Returns whether no packet has joined.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Returns the groups.
    pub fn iter(&self) -> impl Iterator<Item = &PathGroup> {
        self.groups.iter()
    }

    /// Returns the groups, mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut PathGroup> {
        self.groups.iter_mut()
    }

    /// Returns the index of a path's group, and creates the group if needed.
    fn find(&mut self, path: PathId) -> usize {
        match self.group_of.get(path.index()) {
            Some((batch, group)) if *batch == self.batches => *group as usize,
            _ => self.begin_group(path),
        }
    }

    /// Adds an empty group for a path without packets in the batch so far.
    fn begin_group(&mut self, path: PathId) -> usize {
        let group = self.groups.len();
        let members = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(BATCH_SIZE));
        self.groups.push(PathGroup { path, members, bytes: 0, has_changed: false });
        if self.group_of.len() <= path.index() {
            self.group_of.resize(path.index() + 1, (0, 0));
        }
        self.group_of[path.index()] = (self.batches, group as u32);
        group
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(groups: &Groups) -> Vec<(u32, Vec<u16>)> {
        groups.iter().map(|group| (group.path.0, group.members.clone())).collect()
    }

    #[test]
    fn packets_are_sorted_by_path_and_keep_their_order() {
        let mut groups = Groups::default();
        groups.begin();
        for (index, path) in [3, 3, 7, 3, 1].into_iter().enumerate() {
            groups.join(PathId(path), index, 60);
        }
        assert_eq!(sorted(&groups), [(3, vec![0, 1, 3]), (7, vec![2]), (1, vec![4])]);
        assert_eq!(groups.iter().map(|group| group.bytes).collect::<Vec<_>>(), [180, 60, 60]);
        groups.begin();
        assert!(groups.is_empty());
        groups.join(PathId(7), 0, 60);
        assert_eq!(sorted(&groups), [(7, vec![0])]);
        groups.join_all(PathId(2), 2..4, 120);
        groups.join_all(PathId(7), 4..5, 60);
        // A late packet is inserted at its position in the group. If it becomes the first of its group, the
        // groups are no longer in order.
        assert!(groups.join_late(PathId(7), 1, 60) && !groups.join_late(PathId(3), 3, 60));
        assert_eq!(sorted(&groups), [(7, vec![0, 1, 4]), (2, vec![2, 3]), (3, vec![3])]);
        assert_eq!(groups.iter().map(|group| group.bytes).collect::<Vec<_>>(), [180, 120, 60]);
    }

    #[test]
    fn batch_numbers_may_wrap() {
        let mut groups = Groups { batches: u32::MAX - 1, ..Groups::default() };
        for _ in 0..4 {
            groups.begin();
            groups.join(PathId(2), 0, 60);
            groups.join(PathId(5), 1, 60);
            assert_eq!(sorted(&groups), [(2, vec![0]), (5, vec![1])]);
        }
    }
}
