//! VLAN tags that distinguish the ports of a device.

use std::fmt;

use millrace_wire::ethernet::EtherType;
use millrace_wire::vlan;

/// Up to two VLAN tags, outermost first. Priority and drop eligibility are ignored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Tags {
    outer: Option<(u16, u16)>,
    inner: Option<(u16, u16)>,
}

impl Tags {
    /// Tags of an untagged frame.
    pub const NONE: Self = Self { outer: None, inner: None };

    /// Returns the tags of a frame with a single 802.1Q tag.
    pub const fn single(id: u16) -> Self {
        Self { outer: Some((EtherType::VLAN.0, id)), inner: None }
    }

    /// Returns the tags of a frame with an 802.1Q tag inside an 802.1ad tag.
    pub const fn double(outer: u16, inner: u16) -> Self {
        Self { outer: Some((EtherType::SERVICE_VLAN.0, outer)), inner: Some((EtherType::VLAN.0, inner)) }
    }

    /// Returns the tags for the EtherType and VLAN id of each tag.
    pub const fn of_frame(outer: Option<(u16, u16)>, inner: Option<(u16, u16)>) -> Self {
        Self { outer, inner }
    }

    /// Returns EtherType and VLAN id of each tag, outermost first.
    pub fn iter(&self) -> impl Iterator<Item = (u16, u16)> {
        self.outer.into_iter().chain(self.inner)
    }

    /// Returns the length of the tags in a frame, in bytes.
    pub fn bytes(&self) -> usize {
        4 * self.iter().count()
    }
}

impl fmt::Display for Tags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<_> = self.iter().map(|(_, id)| id.to_string()).collect();
        f.write_str(&ids.join("."))
    }
}

/// Returns the VLAN tags of a frame, without priority tags (VLAN id 0).
pub(crate) fn tags_of(stack: &vlan::Stack) -> Tags {
    let tag = |tag: vlan::StackedTag| (tag.tag_protocol.0, tag.control.id());
    let mut tags = [stack.outer(), stack.inner()].into_iter().flatten().map(tag).filter(|(_, id)| *id != 0);
    Tags::of_frame(tags.next(), tags.next())
}
