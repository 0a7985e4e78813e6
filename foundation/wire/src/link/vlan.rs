//! VLAN tags (IEEE 802.1Q, and 802.1ad for two tags).
//!
//! A tag is four octets between the source address and the EtherType of an Ethernet frame. It consists of the
//! tag protocol, in the place of the EtherType, and the tag control information. The next EtherType follows.
//! The view here begins *after* the tag protocol, with the tag control information and the next EtherType.
//! Getters never panic after `new_checked`.

use crate::bytes::{field_types, fields, octets, view};
use crate::error::need;
use crate::{EtherType, WireError};

/// Length in octets of a tag.
pub const TAG_LEN: usize = 4;
/// Maximum number of tags that [`Stack::parse`] reads.
pub const MAX_TAGS: usize = 2;

/// Tag control information: priority, drop eligibility and VLAN id in one 16-bit word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Control(pub u16);

impl Control {
    /// Makes the control information of a VLAN (12 bits), with priority 0.
    #[inline]
    #[must_use]
    pub const fn new(id: u16) -> Self {
        Self(id & 0x0fff)
    }

    /// Returns the VLAN id, 0 to 4095. 0 marks a frame with a priority only; 4095 is reserved.
    #[inline]
    #[must_use]
    pub const fn id(self) -> u16 {
        self.0 & 0x0fff
    }
}

view! {
    /// View of a tag and the payload after it, from the tag control information on.
    Tag
}

field_types! {
    Control: |octets| Self(u16::from_be_bytes(octets)), |control: Self| control.0.to_be_bytes();
}

fields! {
    Tag:
    /// Tag control information.
    control: Control = 0;
    /// EtherType after the tag.
    ether_type: EtherType = 2;
}

impl<T: AsRef<[u8]>> Tag<T> {
    /// Accepts a buffer of at least 4 octets: tag control information and next EtherType.
    #[inline]
    pub fn check(&self) -> Result<(), WireError> {
        need("vlan", TAG_LEN, self.data())
    }
}

/// VLAN tag with its tag protocol. Drivers that strip tags from frames report them in this form, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackedTag {
    /// Tag protocol: [`EtherType::VLAN`] or [`EtherType::SERVICE_VLAN`].
    pub tag_protocol: EtherType,
    /// Tag control information.
    pub control: Control,
}

/// Tags of a frame, outer first, and the EtherType after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stack {
    tags: [Option<StackedTag>; MAX_TAGS],
    /// EtherType after the last tag. If there is a third tag, this type [`is_vlan`](EtherType::is_vlan).
    pub ether_type: EtherType,
    /// Length of the tags in octets.
    pub len: usize,
}

impl Stack {
    /// Reads up to [`MAX_TAGS`] tags. `payload` follows an EtherType field with the value `ether_type`.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if a tag is announced and `payload` ends inside it.
    #[inline]
    pub fn parse(ether_type: EtherType, payload: &[u8]) -> Result<Self, WireError> {
        let mut stack = Self { tags: [None; MAX_TAGS], ether_type, len: 0 };
        for slot in &mut stack.tags {
            if !stack.ether_type.is_vlan() {
                break;
            }
            let tag = Tag::new_checked(octets(payload, stack.len..))?;
            *slot = Some(StackedTag { tag_protocol: stack.ether_type, control: tag.control() });
            stack.ether_type = tag.ether_type();
            stack.len += TAG_LEN;
        }
        Ok(stack)
    }

    /// Returns the outer tag, the first one on the wire; `None` for an untagged frame.
    #[inline]
    #[must_use]
    pub const fn outer(&self) -> Option<StackedTag> {
        let [outer, _] = self.tags;
        outer
    }

    /// Returns the inner tag, the second one on the wire; `None` for a frame with fewer than two tags.
    #[inline]
    #[must_use]
    pub const fn inner(&self) -> Option<StackedTag> {
        let [_, inner] = self.tags;
        inner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_tags_are_read_outer_first() {
        let payload = [0x60, 0x0a, 0x81, 0x00, 0x10, 0x14, 0x08, 0x00, 0x45];
        let stack = Stack::parse(EtherType::SERVICE_VLAN, &payload).unwrap();
        let (outer, inner) = (stack.outer().unwrap(), stack.inner().unwrap());
        assert_eq!((outer.tag_protocol, outer.control.id()), (EtherType::SERVICE_VLAN, 10));
        assert_eq!((inner.tag_protocol, inner.control), (EtherType::VLAN, Control(0x1014)));
        assert_eq!((stack.ether_type, stack.len), (EtherType::IPV4, 8));
    }

    #[test]
    fn a_third_tag_is_left_and_shows() {
        let payload = [0, 1, 0x81, 0, 0, 2, 0x81, 0, 0, 3, 8, 0];
        let stack = Stack::parse(EtherType::VLAN, &payload).unwrap();
        assert!(stack.ether_type.is_vlan());
        assert_eq!(stack.len, 8);
    }

    #[test]
    fn an_announced_tag_must_be_there() {
        assert!(Stack::parse(EtherType::VLAN, &[0, 1, 0x81, 0, 0, 2, 8]).is_err());
        assert_eq!(Stack::parse(EtherType::IPV4, &[]).unwrap().len, 0);
    }
}
