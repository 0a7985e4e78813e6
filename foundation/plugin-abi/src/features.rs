//! Features of the plugin interface: optional parts that a plugin requires and a router offers.
//!
//! Version 1 of the interface grows by features. Each feature has a bit and a name, which never change; a new
//! feature takes the next free bit. The router refuses a plugin that requires a missing feature. The error
//! names the feature, and no code of the plugin runs.

/// Set of features of the plugin interface, one bit for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub struct Features(pub u64);

impl Features {
    /// No feature.
    pub const NONE: Self = Self(0);
    /// The router keeps state for each flow: manifest key `flow-state`, field `RawPacket::state`.
    pub const FLOW_STATE: Self = Self(1 << 0);
    /// The router reports the ends of flows: export `millrace_flow_ended`.
    pub const FLOW_ENDS: Self = Self(1 << 1);
    /// The router keeps state common to all flows: manifest key `service-state`, host function
    /// `service_state`.
    pub const SERVICE_STATE: Self = Self(1 << 2);
    /// The router hands state over to a successor: manifest key `state-version`, exports `millrace_save` and
    /// `millrace_restore`.
    pub const SAVED_STATE: Self = Self(1 << 3);
    /// The router keeps counters: manifest key `counters`, host function `count`.
    pub const COUNTERS: Self = Self(1 << 4);
    /// The router offers maps that instances share: manifest key `maps`, settings of the format `map`, host
    /// functions `map_get`, `map_set` and `map_remove`.
    pub const MAPS: Self = Self(1 << 5);
    /// The router calls plugins at set times, without packets: manifest key `period`, host function `timer`,
    /// export `millrace_periodic`.
    pub const TIMERS: Self = Self(1 << 6);
    /// The router writes lines to a log: host function `log`.
    pub const LOG: Self = Self(1 << 7);
    /// The router gives access to packet bytes beyond the window, and resizes packets: host functions
    /// `packet_read`, `packet_write` and `packet_resize`.
    pub const PACKET_BYTES: Self = Self(1 << 8);
    /// The router forwards packets that a plugin makes: host function `packet_make`.
    pub const PACKET_MAKE: Self = Self(1 << 9);
    /// The router reports the backlog of a packet: host function `flow_backlog`.
    pub const FLOW_BACKLOG: Self = Self(1 << 10);
    /// The router accepts requests for changes: host function `request`.
    pub const REQUESTS: Self = Self(1 << 11);
    /// The router carries messages between an instance and its host companion: manifest key `host-companion`,
    /// host function `send`, export `millrace_message`.
    pub const HOST_COMPANION: Self = Self(1 << 12);
    /// The router sends packets out of ports that a plugin names: the verdicts `PORT` and `PORTS`.
    pub const TO_PORTS: Self = Self(1 << 13);
    /// The router puts packets into queues that a plugin names: the verdict `QUEUE`.
    pub const TO_QUEUES: Self = Self(1 << 14);
    /// The router passes packets to other instances: the verdict `INSTANCE`.
    pub const TO_INSTANCES: Self = Self(1 << 15);
    /// The router classifies packets again: the verdict `CLASSIFY`.
    pub const CLASSIFY: Self = Self(1 << 16);
    /// The router holds packets until a time: the verdict `HOLD`.
    pub const HOLD: Self = Self(1 << 17);
    /// The router answers packets with ICMP errors: the verdict `REJECT`.
    pub const REJECT: Self = Self(1 << 18);

    /// The router keeps state for both directions of a connection: manifest key `state` with the value `connection`,
    /// field `RawPacket::connection`.
    pub const CONNECTIONS: Self = Self(1 << 19);

    /// Every feature with its name, in the order of the bits.
    pub const NAMED: [(&str, Self); 20] = [
        ("flow-state", Self::FLOW_STATE),
        ("flow-ends", Self::FLOW_ENDS),
        ("service-state", Self::SERVICE_STATE),
        ("saved-state", Self::SAVED_STATE),
        ("counters", Self::COUNTERS),
        ("maps", Self::MAPS),
        ("timers", Self::TIMERS),
        ("log", Self::LOG),
        ("packet-bytes", Self::PACKET_BYTES),
        ("packet-make", Self::PACKET_MAKE),
        ("flow-backlog", Self::FLOW_BACKLOG),
        ("requests", Self::REQUESTS),
        ("host-companion", Self::HOST_COMPANION),
        ("to-ports", Self::TO_PORTS),
        ("to-queues", Self::TO_QUEUES),
        ("to-instances", Self::TO_INSTANCES),
        ("classify", Self::CLASSIFY),
        ("hold", Self::HOLD),
        ("reject", Self::REJECT),
        ("connections", Self::CONNECTIONS),
    ];

    /// Features that the router offers to plugins at the workers: all of them.
    pub const AT_WORKERS: Self = Self((1 << Self::NAMED.len()) - 1);

    /// Features that the router offers to host companions at the host level, where there are no packets and
    /// no flows.
    pub const ON_HOST_LEVEL: Self = Self::SERVICE_STATE
        .and(Self::SAVED_STATE)
        .and(Self::COUNTERS)
        .and(Self::TIMERS)
        .and(Self::LOG)
        .and(Self::REQUESTS)
        .and(Self::HOST_COMPANION);

    /// Returns the union of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the features of this set that the other set lacks.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns this set if `holds`, otherwise the empty set.
    #[must_use]
    pub const fn when(self, holds: bool) -> Self {
        if holds { self } else { Self::NONE }
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the feature with this name; the empty set for an unknown name.
    #[must_use]
    pub const fn of_name(name: &str) -> Self {
        let mut at = 0;
        while at < Self::NAMED.len() {
            if same(name, Self::NAMED[at].0) {
                return Self::NAMED[at].1;
            }
            at += 1;
        }
        Self::NONE
    }

    /// Returns the feature of a capability's functions; the empty set for an unknown capability.
    #[must_use]
    pub const fn of_capability(name: &str) -> Self {
        match name.as_bytes() {
            b"log" => Self::LOG,
            b"packet-read" | b"packet-write" | b"packet-resize" => Self::PACKET_BYTES,
            b"packet-make" => Self::PACKET_MAKE,
            b"flow-backlog" => Self::FLOW_BACKLOG,
            b"timer" => Self::TIMERS,
            b"map-read" | b"map-write" => Self::MAPS,
            b"message" => Self::HOST_COMPANION,
            b"request"
            | b"request-filters"
            | b"request-routes"
            | b"request-queues"
            | b"request-instances"
            | b"request-principals" => Self::REQUESTS,
            _ => Self::NONE,
        }
    }
}

const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

#[cfg(feature = "host")]
mod host {
    use super::Features;

    /// Error for a plugin that requires features that the router doesn't offer.
    #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
    #[error(
        "the plugin needs {} of the plugin interface, which this router does not offer {place}; offered \
         there: {}", needed(missing), offered.names().join(", ")
    )]
    pub struct NotOffered {
        /// Missing features, by name or as `bit` with its number.
        pub missing: Vec<String>,
        /// Place where the plugin was to run: `at its workers`, or `on the host level`.
        pub place: &'static str,
        /// Features offered at this place.
        pub offered: Features,
    }

    fn needed(missing: &[String]) -> String {
        let word = if missing.len() == 1 { "the feature" } else { "the features" };
        format!("{word} {}", missing.join(", "))
    }

    impl Features {
        /// Returns the names of all features in the set, in the order of the bits; for a feature without a
        /// name, its bit number.
        pub fn names(self) -> Vec<String> {
            let bits = (0..u64::BITS).filter(|bit| self.0 >> bit & 1 != 0);
            let name = |bit: u32| match Self::NAMED.get(bit as usize) {
                Some((name, _)) => (*name).to_owned(),
                None => format!("bit {bit}"),
            };
            bits.map(name).collect()
        }

        /// Checks that the router offers all features of the set at its workers.
        ///
        /// # Errors
        /// [`NotOffered`] with the missing features.
        pub fn check_at_workers(self) -> Result<(), NotOffered> {
            self.check("at its workers", Self::AT_WORKERS)
        }

        /// Checks that the router offers all features of the set at the host level.
        ///
        /// # Errors
        /// [`NotOffered`] with the missing features.
        pub fn check_on_host_level(self) -> Result<(), NotOffered> {
            self.check("on the host level", Self::ON_HOST_LEVEL)
        }

        fn check(self, place: &'static str, offered: Self) -> Result<(), NotOffered> {
            match self.without(offered) {
                Self::NONE => Ok(()),
                missing => Err(NotOffered { missing: missing.names(), place, offered }),
            }
        }
    }
}

#[cfg(feature = "host")]
pub use host::NotOffered;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binary::{HOST_FUNCTIONS, REQUEST_CAPABILITIES};

    /// Compares bits and names of all features with a fixed list. A new feature may only follow the last one.
    #[test]
    fn each_feature_keeps_its_bit_and_its_name() {
        let names = Features::NAMED.map(|(name, _)| name);
        assert_eq!(names[..4], ["flow-state", "flow-ends", "service-state", "saved-state"]);
        assert_eq!(names[4..10], ["counters", "maps", "timers", "log", "packet-bytes", "packet-make"]);
        assert_eq!(names[10..14], ["flow-backlog", "requests", "host-companion", "to-ports"]);
        assert_eq!(names[14..19], ["to-queues", "to-instances", "classify", "hold", "reject"]);
        assert_eq!(names[19..], ["connections"]);
        for (bit, (name, feature)) in Features::NAMED.into_iter().enumerate() {
            assert_eq!((feature.0, Features::of_name(name)), (1 << bit, feature), "{name}");
        }
        assert_eq!(Features::of_name("fly"), Features::NONE);
    }

    #[test]
    fn every_capability_belongs_to_a_feature() {
        let capabilities = HOST_FUNCTIONS.iter().filter_map(|(_, capability)| *capability);
        for capability in capabilities.chain(REQUEST_CAPABILITIES) {
            assert!(!Features::of_capability(capability).is_empty(), "{capability}");
        }
        assert!(Features::of_capability("fly").is_empty());
    }

    #[cfg(feature = "host")]
    #[test]
    fn unavailable_features_are_refused_by_name_or_number() {
        assert_eq!(Features::AT_WORKERS.check_at_workers(), Ok(()));
        assert_eq!(Features::ON_HOST_LEVEL.check_on_host_level(), Ok(()));
        let refused = Features::HOLD.and(Features(1 << 40)).check_at_workers().unwrap_err().to_string();
        let begin = "the plugin needs the feature bit 40 of the plugin interface, which this router does not \
                     offer at its workers; ";
        assert!(
            refused.starts_with(begin) && refused.ends_with("classify, hold, reject, connections"),
            "{refused}"
        );
        let refused = Features::HOLD.and(Features::CLASSIFY).check_on_host_level().unwrap_err().to_string();
        assert_eq!(
            refused,
            "the plugin needs the features classify, hold of the plugin interface, which this router does \
             not offer on the host level; offered there: service-state, saved-state, counters, timers, log, \
             requests, host-companion"
        );
    }
}
