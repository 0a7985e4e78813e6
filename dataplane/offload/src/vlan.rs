//! VLAN tags in the format of the offload program's map.

use std::fmt;

/// VLAN tag (IEEE 802.1Q-2022 §9.6).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct VlanTag {
    /// Tag protocol identifier: 0x8100 (C-tag) or 0x88a8 (S-tag).
    pub tpid: u16,
    /// VLAN identifier, 1 to 4094.
    pub vid: u16,
}

/// One or two tags of a VLAN sub-interface, outermost first. Priority tags (vid 0) do not count.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct VlanStack {
    /// Outer, or only, tag.
    pub outer: VlanTag,
    /// Second tag of a QinQ frame.
    pub inner: Option<VlanTag>,
}

impl VlanStack {
    /// Returns a single 802.1Q tag.
    pub const fn single(vid: u16) -> Self {
        Self { outer: VlanTag { tpid: 0x8100, vid }, inner: None }
    }

    /// Returns the key of the map `vlans`: outer TPID, outer vid, inner TPID, inner vid, each 16 bits in
    /// native byte order.
    pub(crate) fn key(self) -> [u16; 4] {
        let inner = self.inner.unwrap_or(VlanTag { tpid: 0, vid: 0 });
        [self.outer.tpid, self.outer.vid, inner.tpid, inner.vid]
    }

    /// Returns the stack of a key, the inverse of [`Self::key`].
    pub(crate) fn from_key([tpid, vid, inner_tpid, inner_vid]: [u16; 4]) -> Self {
        let inner = (inner_vid != 0).then_some(VlanTag { tpid: inner_tpid, vid: inner_vid });
        Self { outer: VlanTag { tpid, vid }, inner }
    }
}

impl fmt::Display for VlanTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}/{}", self.tpid, self.vid)
    }
}

impl fmt::Display for VlanStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.inner {
            Some(inner) => write!(f, "{}.{inner}", self.outer),
            None => self.outer.fmt(f),
        }
    }
}
