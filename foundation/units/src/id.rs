//! Ids of ports, plugin instances and other objects, as small integers.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $inner:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// Returns the id as an index into the table of its kind.
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
    /// Port of the router: a kernel device, a TAP, a pcap or memory port, or a VLAN sub-interface.
    PortId, u16
);
id!(
    /// Gate: a point in the pipeline at which plugin instances are bound to flows.
    GateId, u8
);
id!(
    /// Plugin instance.
    InstanceId, u16
);
id!(
    /// Path: an interned list of the bindings that apply to a flow.
    PathId, u32
);
id!(
    /// Principal: owner of a share of the processor.
    PrincipalId, u32
);
id!(
    /// Queue of a port.
    QueueId, u16
);
id!(
    /// Route number. Routes of the FIB, routes that filters prescribe, and routes of copies have different
    /// numbers.
    NextHopIndex, u32
);

impl PortId {
    /// No port: ingress port of packets that the router has made.
    pub const NONE: Self = Self(u16::MAX);
}

impl PrincipalId {
    /// Core: receiving, classifying, forwarding and sending packets. Workers count its time like that of a
    /// principal.
    pub const CORE: Self = Self(u32::MAX);
    /// Control: packets for the router itself. Workers count its time like that of a principal.
    pub const CONTROL: Self = Self(u32::MAX - 1);
}
