//! Classes of packets to the router itself, for control-plane policing. Each class has a rate limit, so that
//! a flood causes losses in its own class only.

use std::fmt;

macro_rules! control_classes {
    ($(#[doc = $doc:literal] $variant:ident = $name:literal,)+) => {
        /// Class of packets to the router itself.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum ControlClass { $(#[doc = $doc] $variant,)+ }

        impl ControlClass {
            /// All classes, in the order of their numbers, which the XDP programs share.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Returns the name of the class in settings, counters and JSON.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// Returns a sentence that describes the packets of the class.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $doc.trim_ascii(),)+ }
            }
        }
    };
}

control_classes! {
    /// TCP of connections that the kernel already has, whatever their ports.
    Established = "established",
    /// TCP from or to port 179 without such a connection: new BGP sessions.
    Bgp = "bgp",
    /// OSPF: protocol 89.
    Ospf = "ospf",
    /// Other routing protocols: BFD, RIP, LDP hellos, EIGRP, PIM, VRRP, and packets over LLC such as IS-IS.
    Routing = "routing",
    /// ICMP and ICMPv6, except neighbour discovery.
    Icmp = "icmp",
    /// IPv4 with options such as Router Alert, IPv6 with hop-by-hop options, IGMP and MLD.
    Options = "options",
    /// ARP, and neighbour discovery from the link.
    Neighbours = "neighbours",
    /// All other packets to the router itself, including tunnels that end at it.
    Other = "other",
}

/// Number of classes.
pub const CONTROL_CLASSES: usize = ControlClass::ALL.len();

impl ControlClass {
    /// Returns the number of the class: its index in [`ControlClass::ALL`].
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

/// Counts of packets to the router itself, by class number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClassCounts {
    /// Packets that passed the rate limit.
    pub passed: [u64; CONTROL_CLASSES],
    /// Packets that exceeded the rate of their class and were dropped.
    pub dropped: [u64; CONTROL_CLASSES],
}

impl ClassCounts {
    /// Adds other counts.
    pub fn add(&mut self, more: &Self) {
        self.passed.iter_mut().zip(more.passed).for_each(|(sum, more)| *sum += more);
        self.dropped.iter_mut().zip(more.dropped).for_each(|(sum, more)| *sum += more);
    }

    /// Returns the difference between these counts and the earlier counts `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let less = |now: &[u64; CONTROL_CLASSES], before: &[u64; CONTROL_CLASSES]| {
            let mut less = *now;
            less.iter_mut().zip(before).for_each(|(now, before)| *now = now.saturating_sub(*before));
            less
        };
        Self { passed: less(&self.passed, &before.passed), dropped: less(&self.dropped, &before.dropped) }
    }

    /// Returns the number of dropped packets of all classes.
    pub fn all_dropped(&self) -> u64 {
        self.dropped.iter().sum()
    }
}
