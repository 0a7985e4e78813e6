//! Classes of packets for the router itself: each has a rate of its own, so that a flood loses packets in its class alone.

use std::fmt;

macro_rules! control_classes {
    ($(#[doc = $doc:literal] $variant:ident = $name:literal,)+) => {
        /// A class of packets for the router itself.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum ControlClass { $(#[doc = $doc] $variant,)+ }

        impl ControlClass {
            /// Every class, in the order of their numbers, which programs in the driver know.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The class's name in settings, counters and JSON.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// What belongs to the class, in a sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $doc.trim_ascii(),)+ }
            }
        }
    };
}

control_classes! {
    /// TCP of connections that the kernel has: sessions that are up, whatever comes to their ports.
    Established = "established",
    /// TCP from and to port 179 of no such connection: sessions of BGP that begin.
    Bgp = "bgp",
    /// OSPF: protocol 89.
    Ospf = "ospf",
    /// Other routing protocols: BFD, RIP, LDP's hellos, EIGRP, PIM, VRRP, and what comes over LLC, as IS-IS does.
    Routing = "routing",
    /// ICMP and ICMPv6, but for neighbour discovery.
    Icmp = "icmp",
    /// IPv4 with options, Router Alert among them, IPv6 with options of each hop, IGMP and MLD.
    Options = "options",
    /// ARP, and neighbour discovery that comes from the link.
    Neighbours = "neighbours",
    /// Everything else that is for the router itself, tunnels that end at it included.
    Other = "other",
}

/// How many classes there are.
pub const CONTROL_CLASSES: usize = ControlClass::ALL.len();

impl ControlClass {
    /// The class's number: its place in [`ControlClass::ALL`].
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for ControlClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What became of packets for the router itself, by the numbers of their classes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClassCounts {
    /// Those that got through.
    pub passed: [u64; CONTROL_CLASSES],
    /// Those that were dropped because more came than the class bears.
    pub dropped: [u64; CONTROL_CLASSES],
}

impl ClassCounts {
    /// Adds what was counted elsewhere.
    pub fn add(&mut self, more: &Self) {
        self.passed.iter_mut().zip(more.passed).for_each(|(sum, more)| *sum += more);
        self.dropped.iter_mut().zip(more.dropped).for_each(|(sum, more)| *sum += more);
    }

    /// What was counted since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let less = |now: &[u64; CONTROL_CLASSES], before: &[u64; CONTROL_CLASSES]| {
            let mut less = *now;
            less.iter_mut().zip(before).for_each(|(now, before)| *now = now.saturating_sub(*before));
            less
        };
        Self { passed: less(&self.passed, &before.passed), dropped: less(&self.dropped, &before.dropped) }
    }

    /// All that were dropped.
    pub fn all_dropped(&self) -> u64 {
        self.dropped.iter().sum()
    }
}
