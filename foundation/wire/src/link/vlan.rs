//! VLAN tags (IEEE 802.1Q, and 802.1ad for two tags).
//!
//! A tag is four octets between the source address and the type of an Ethernet frame: the tag protocol (in
//! the place of the outer type field), then the control information. The next type follows. The view here
//! begins *after* the outer type, with the control information and the inner type. Getters never panic after
//! `new_checked`.

use std::fmt;

use crate::bytes::{get_u16, octets, put_u16, view};
use crate::error::need;
use crate::{EtherType, WireError};

/// Length in octets of a tag.
pub const TAG_LEN: usize = 4;
/// Maximum number of tags that [`Stack::parse`] reads.
pub const MAX_TAGS: usize = 2;

mod field {
    pub const CONTROL: usize = 0;
    pub const ETHER_TYPE: usize = 2;
}

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

    /// Returns the VLAN id, 0 to 4095. Zero marks a frame that has a priority only; 4095 is reserved.
    #[inline]
    #[must_use]
    pub const fn id(self) -> u16 {
        self.0 & 0x0fff
    }

    /// Returns the priority code point, 0 to 7.
    #[inline]
    #[must_use]
    pub const fn priority(self) -> u8 {
        (self.0 >> 13) as u8
    }

    /// Whether the frame is eligible to be dropped before others.
    #[inline]
    #[must_use]
    pub const fn drop_eligible(self) -> bool {
        self.0 & 0x1000 != 0
    }
}

view! {
    /// View of a tag and the following octets, from the tag control information on.
    Tag
}

impl<T: AsRef<[u8]>> Tag<T> {
    /// Accepts a buffer that holds the tag.
    ///
    /// # Errors
    /// [`WireError::Truncated`] below 4 octets.
    #[inline]
    pub fn check(&self) -> Result<(), WireError> {
        need("vlan", TAG_LEN, self.data())
    }

    /// Returns the tag control information.
    #[inline]
    pub fn control(&self) -> Control {
        Control(get_u16(self.data(), field::CONTROL))
    }

    /// Returns the EtherType after the tag.
    #[inline]
    pub fn ether_type(&self) -> EtherType {
        EtherType(get_u16(self.data(), field::ETHER_TYPE))
    }

    /// Returns the octets after the tag.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        octets(self.data(), TAG_LEN..)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Tag<T> {
    /// Sets the tag control information.
    #[inline]
    pub fn set_control(&mut self, control: Control) {
        put_u16(self.buffer.as_mut(), field::CONTROL, control.0);
    }

    /// Sets the EtherType after the tag.
    #[inline]
    pub fn set_ether_type(&mut self, ether_type: EtherType) {
        put_u16(self.buffer.as_mut(), field::ETHER_TYPE, ether_type.0);
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Tag<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::parse(self).fmt(f)
    }
}

/// A tag, and the type after it, as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repr {
    /// Tag control information.
    pub control: Control,
    /// EtherType after the tag.
    pub ether_type: EtherType,
}

impl Repr {
    /// Reads the tag. Every field value is valid, so the function cannot fail.
    pub fn parse<T: AsRef<[u8]>>(tag: &Tag<T>) -> Self {
        Self { control: tag.control(), ether_type: tag.ether_type() }
    }

    /// Returns the number of octets that [`emit`](Self::emit) writes.
    #[must_use]
    pub const fn buffer_len(&self) -> usize {
        TAG_LEN
    }

    /// Writes the tag.
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, tag: &mut Tag<T>) {
        tag.set_control(self.control);
        tag.set_ether_type(self.ether_type);
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let drop = if self.control.drop_eligible() { " drop-eligible" } else { "" };
        let (id, priority) = (self.control.id(), self.control.priority());
        write!(f, "vlan {id} priority {priority}{drop} {}", self.ether_type)
    }
}

/// Tag with its tag protocol. Drivers report tags that they have stripped in this form, too.
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
    /// Reads up to [`MAX_TAGS`] tags from `payload`, which follows a type field of `ether_type`.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if an announced tag is missing.
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
    use proptest::prelude::*;

    #[test]
    fn two_tags_are_read_outer_first() {
        let payload = [0x60, 0x0a, 0x81, 0x00, 0x10, 0x14, 0x08, 0x00, 0x45];
        let stack = Stack::parse(EtherType::SERVICE_VLAN, &payload).unwrap();
        let (outer, inner) = (stack.outer().unwrap(), stack.inner().unwrap());
        assert_eq!(
            (outer.tag_protocol, outer.control.id(), outer.control.priority()),
            (EtherType::SERVICE_VLAN, 10, 3)
        );
        assert_eq!((inner.tag_protocol, inner.control.id()), (EtherType::VLAN, 20));
        assert!(inner.control.drop_eligible() && !outer.control.drop_eligible());
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

    proptest! {
        #[test]
        fn parse_inverts_emit(control: u16, ether_type: u16) {
            let repr = Repr { control: Control(control), ether_type: EtherType(ether_type) };
            let mut tag = Tag::new_checked([0u8; TAG_LEN]).unwrap();
            repr.emit(&mut tag);
            prop_assert_eq!(Repr::parse(&tag), repr);
        }
    }
}
