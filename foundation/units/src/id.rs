//! Names of things as small integers.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $inner:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The id as an index into the table of its kind.
            #[inline]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A port of the router: a kernel device, a TAP, a pcap or memory port, or a VLAN sub-interface.
    PortId, u16
);
id!(
    /// A gate: a position in the packet's journey where plugin instances are bound.
    GateId, u8
);
id!(
    /// A plugin instance.
    InstanceId, u16
);
id!(
    /// An interned list of plugin instances, the treatment of a flow.
    PathId, u32
);
id!(
    /// A queue of a port.
    QueueId, u16
);
id!(
    /// A next-hop group of the forwarding table.
    NextHopIndex, u32
);
id!(
    /// A data-plane thread.
    WorkerId, u8
);

impl PortId {
    /// No port: packets that the router itself made.
    pub const NONE: Self = Self(u16::MAX);
}
