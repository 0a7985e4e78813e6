//! Next-hop objects and their resolution to next hops.

use std::collections::BTreeMap;

use super::message::NextHopObject;
use crate::HostNextHop;

/// Next hops to which a next-hop object resolves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Resolved {
    pub blackhole: bool,
    pub next_hops: Vec<HostNextHop>,
}

/// Next-hop objects of a namespace, each with the generation of its last confirmation.
#[derive(Clone, Debug, Default)]
pub(super) struct NextHopTable {
    objects: BTreeMap<u32, (NextHopObject, u32)>,
}

impl NextHopTable {
    pub fn insert(&mut self, object: NextHopObject, generation: u32) {
        self.objects.insert(object.id, (object, generation));
    }

    /// Removes an object, its group memberships, and the groups that become empty. Returns the ids of all
    /// removed objects.
    pub fn remove(&mut self, id: u32) -> Vec<u32> {
        let mut gone = Vec::new();
        let mut pending = vec![id];
        while let Some(id) = pending.pop() {
            if self.objects.remove(&id).is_none() && !gone.is_empty() {
                continue;
            }
            gone.push(id);
            for (object, _) in self.objects.values_mut() {
                let Some(group) = &mut object.group else { continue };
                let members = group.len();
                group.retain(|(member, _)| *member != id);
                if group.is_empty() && members > 0 {
                    pending.push(object.id);
                }
            }
        }
        gone
    }

    /// Returns the object's next hops; `None` for an unknown object.
    pub fn resolve(&self, id: u32) -> Option<Resolved> {
        let (object, _) = self.objects.get(&id)?;
        let Some(group) = &object.group else {
            let next_hops = object.hop.into_iter().collect();
            return Some(Resolved { blackhole: object.blackhole, next_hops });
        };
        let mut resolved = Resolved { blackhole: false, next_hops: Vec::with_capacity(group.len()) };
        for (member, weight) in group {
            let Some((member, _)) = self.objects.get(member) else { continue };
            resolved.blackhole |= member.blackhole;
            resolved.next_hops.extend(member.hop.map(|hop| HostNextHop { weight: *weight, ..hop }));
        }
        Some(resolved)
    }

    /// Returns the ids of the object and of the groups that contain it.
    pub fn with_groups(&self, id: u32) -> Vec<u32> {
        let in_group = |object: &NextHopObject| {
            object.group.as_ref().is_some_and(|group| group.iter().any(|(member, _)| *member == id))
        };
        let groups = self.objects.values().map(|(object, _)| object).filter(|object| in_group(object));
        std::iter::once(id).chain(groups.map(|object| object.id)).collect()
    }

    /// Returns the objects that send by a device.
    pub fn on_device(&self, ifindex: u32) -> Vec<u32> {
        let uses = |object: &NextHopObject| object.hop.is_some_and(|hop| hop.ifindex == ifindex);
        self.objects.values().filter(|(object, _)| uses(object)).map(|(object, _)| object.id).collect()
    }

    /// Returns the objects not confirmed since `generation`.
    pub fn older_than(&self, generation: u32) -> Vec<u32> {
        self.objects.values().filter(|(_, stamp)| *stamp < generation).map(|(object, _)| object.id).collect()
    }

    pub fn objects(&self) -> impl Iterator<Item = &NextHopObject> {
        self.objects.values().map(|(object, _)| object)
    }
}
