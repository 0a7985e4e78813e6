//! An event: something that happened in a running router, and that a person or a program may have to know.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// It was meant to happen.
    Information,
    /// Something doesn't work as it should, and the router goes on by itself.
    Warning,
    /// Something has stopped working until somebody acts.
    Error,
}

impl Severity {
    /// Its name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Information => "information",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

macro_rules! kinds {
    ($($(#[doc = $text:literal])+ $variant:ident $name:literal $severity:ident,)+) => {
        /// What kind of thing happened.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "kebab-case")]
        pub enum EventKind {
            $($(#[doc = $text])+ $variant,)+
        }

        impl EventKind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Its name in JSON and on the command line.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// How much it matters.
            pub const fn severity(self) -> Severity {
                match self {
                    $(Self::$variant => Severity::$severity,)+
                }
            }

            /// What it means, and what its subject is.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($text),+).trim_ascii(),)+
                }
            }
        }
    };
}

kinds! {
    /// The router forwards. Subject: its version.
    RouterStarted "router-started" Information,
    /// A worker panicked before this start, and a capture of its last batch is kept. Subject: the capture.
    WorkerPanicked "worker-panicked" Error,
    /// A port can send and receive. Subject: the port.
    LinkUp "link-up" Information,
    /// A port can't send or receive any more: its device is down, or has no carrier. Subject: the port.
    LinkDown "link-down" Warning,
    /// The device of a port doesn't exist any more. Subject: the port.
    DeviceGone "device-gone" Error,
    /// The device of a port exists again, and is used. Subject: the port.
    DeviceBack "device-back" Information,
    /// The kernel has a queueing discipline at a port that no packet of the router passes. Subject: the port.
    QueueingPassedBy "queueing-passed-by" Warning,
    /// It is there no more. Subject: the port.
    QueueingGone "queueing-gone" Information,
    /// A neighbour's link address became known. Subject: its address and the port.
    NeighbourLearned "neighbour-learned" Information,
    /// A neighbour has another link address. Subject: its address and the port.
    NeighbourChanged "neighbour-changed" Warning,
    /// A neighbour was forgotten. Subject: its address and the port.
    NeighbourLost "neighbour-lost" Information,
    /// A neighbour does not answer. Subject: its address and the port.
    NeighbourFailed "neighbour-failed" Warning,
    /// Another station uses an address of the router's. Subject: the address and the port.
    AddressConflict "address-conflict" Error,
    /// The kernel doesn't have a configured route, which it is given again. Subject: its prefix, or the first of several.
    RouteMissing "route-missing" Warning,
    /// The kernel was given such a route again. Subject: its prefix, or the first of several.
    RouteBack "route-back" Information,
    /// A plugin was loaded. Subject: the plugin.
    PluginLoaded "plugin-loaded" Information,
    /// A plugin was unloaded. Subject: the plugin.
    PluginUnloaded "plugin-unloaded" Information,
    /// A plugin has another version. Subject: the plugin.
    PluginUpgraded "plugin-upgraded" Information,
    /// A plugin has the version again that it had before. Subject: the plugin.
    PluginRolledBack "plugin-rolled-back" Information,
    /// An instance failed. Subject: the instance.
    PluginFault "plugin-fault" Warning,
    /// An instance that failed works again after its pause. Subject: the instance.
    InstanceRestarted "instance-restarted" Information,
    /// An instance is in quarantine. Subject: the instance.
    InstanceQuarantined "instance-quarantined" Error,
    /// An instance was let out of quarantine. Subject: the instance.
    InstanceReleased "instance-released" Information,
    /// A configuration was applied. Subject: where it came from.
    ConfigurationApplied "configuration-applied" Information,
    /// A configuration was not applied. Subject: where it came from.
    ConfigurationRefused "configuration-refused" Warning,
    /// A configuration that waited to be confirmed was. Subject: its revision.
    ConfigurationConfirmed "configuration-confirmed" Information,
    /// A configuration that waited to be confirmed was withdrawn. Subject: its revision.
    ConfigurationRolledBack "configuration-rolled-back" Warning,
    /// What runs was given out, to be saved as a file. Subject: the file.
    ConfigurationSaved "configuration-saved" Information,
    /// A rate or a service curve is reserved, or another one. Subject: the port, and the queue, node or flow.
    ReservationSet "reservation-set" Information,
    /// A rate or a service curve is no longer reserved. Subject: the port, and the queue, node or flow.
    ReservationRemoved "reservation-removed" Information,
    /// Something is nearly full, or loses packets all the time. Subject: what.
    ThresholdExceeded "threshold-exceeded" Warning,
    /// That is over. Subject: what.
    ThresholdCleared "threshold-cleared" Information,
    /// The handler of a request panicked: its client got the status 500. Subject: method and path.
    HandlerPanicked "handler-panicked" Error,
    /// Lines could not be written into the audit log, or came faster than its disk took them. Subject: its file.
    AuditFailed "audit-failed" Error,
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for EventKind {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name).ok_or(())
    }
}

/// Something that happens, before it has a number.
#[derive(Clone, Debug, PartialEq)]
pub struct Occurrence {
    /// What kind of thing.
    pub kind: EventKind,
    /// What it happened to; [`EventKind::meaning`] says what that is.
    pub subject: String,
    /// One sentence for people.
    pub text: String,
    /// The same for programs.
    pub details: Map<String, Value>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Event {
    /// Its number: the first of a router is 1, each one more than the one before.
    pub number: u64,
    /// When it happened, or the last of several: date and time, UTC.
    pub time: String,
    /// What kind of thing.
    pub kind: EventKind,
    /// What it happened to.
    pub subject: String,
    /// How much it matters.
    pub severity: Severity,
    /// One sentence for people; of several, about the last.
    pub text: String,
    /// How many there were.
    pub count: u64,
    /// What the sentence says, for programs.
    pub details: Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_json() {
        for kind in EventKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
            assert_eq!(kind.name().parse(), Ok(*kind));
            assert!(kind.meaning().contains("Subject: "), "{kind}");
            let severity = kind.severity();
            assert_eq!(serde_json::to_value(severity).unwrap(), severity.name());
        }
        assert!("link".parse::<EventKind>().is_err());
    }
}
