//! Events of a running router: occurrences that a user or a program may need to know.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Intended change, or the end of a malfunction.
    Information,
    /// Malfunction that the router handles by itself.
    Warning,
    /// Failure that lasts until somebody acts.
    Error,
}

impl Severity {
    /// Returns the name of the severity in JSON.
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
        /// Kind of an event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "kebab-case")]
        pub enum EventKind {
            $($(#[doc = $text])+ $variant,)+
        }

        impl EventKind {
            /// All kinds of events.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the name of the kind in JSON and on the command line.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// Returns the severity of the kind.
            pub const fn severity(self) -> Severity {
                match self {
                    $(Self::$variant => Severity::$severity,)+
                }
            }

            /// Returns the meaning of the kind and of its subject, as text for documents.
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
    /// The device of a port exists again, and the port uses it. Subject: the port.
    DeviceBack "device-back" Information,
    /// A port got a qdisc of the kernel, which packets of the router bypass. Subject: the port.
    QdiscBypassed "qdisc-bypassed" Warning,
    /// The kernel removed the qdisc of a port that packets of the router bypassed. Subject: the port.
    QdiscRemoved "qdisc-removed" Information,
    /// The MAC address of a neighbour became known. Subject: its address and the port.
    NeighbourLearned "neighbour-learned" Information,
    /// A neighbour has another MAC address. Subject: its address and the port.
    NeighbourChanged "neighbour-changed" Warning,
    /// A neighbour entry was removed. Subject: its address and the port.
    NeighbourLost "neighbour-lost" Information,
    /// A neighbour does not answer. Subject: its address and the port.
    NeighbourFailed "neighbour-failed" Warning,
    /// Another station uses an address of the router. Subject: the address and the port.
    AddressConflict "address-conflict" Error,
    /// The kernel lacks a configured route; the router tries to add it again. Subject: its prefix, or the
    /// first of several.
    RouteMissing "route-missing" Warning,
    /// A missing configured route is in the kernel again. Subject: its prefix, or the first of several.
    RouteBack "route-back" Information,
    /// A plugin was loaded. Subject: the plugin.
    PluginLoaded "plugin-loaded" Information,
    /// A plugin was unloaded. Subject: the plugin.
    PluginUnloaded "plugin-unloaded" Information,
    /// A plugin was upgraded to another version. Subject: the plugin.
    PluginUpgraded "plugin-upgraded" Information,
    /// A plugin was rolled back to its previous version. Subject: the plugin.
    PluginRolledBack "plugin-rolled-back" Information,
    /// An instance failed. Subject: the instance.
    PluginFault "plugin-fault" Warning,
    /// An instance resumed after its pause for a fault. Subject: the instance.
    InstanceRestarted "instance-restarted" Information,
    /// An instance is in quarantine. Subject: the instance.
    InstanceQuarantined "instance-quarantined" Error,
    /// An instance used more processor time than its plugin declares. Subject: the instance.
    ImpactExceeded "impact-exceeded" Warning,
    /// An instance moves to another level, because its load has grown. Subject: the instance.
    ServiceMoved "service-moved" Information,
    /// An instance was released from quarantine. Subject: the instance.
    InstanceReleased "instance-released" Information,
    /// A configuration was applied. Subject: its source.
    ConfigurationApplied "configuration-applied" Information,
    /// A configuration was not applied. Subject: its source.
    ConfigurationRefused "configuration-refused" Warning,
    /// A configuration was confirmed. Subject: its revision.
    ConfigurationConfirmed "configuration-confirmed" Information,
    /// A configuration was rolled back instead of being confirmed. Subject: its revision.
    ConfigurationRolledBack "configuration-rolled-back" Warning,
    /// The running configuration was saved as a revision. Subject: its origin.
    ConfigurationSaved "configuration-saved" Information,
    /// A rate or a service curve was reserved or changed. Subject: the port, and the queue, node or flow.
    ReservationSet "reservation-set" Information,
    /// A rate or a service curve is no longer reserved. Subject: the port, and the queue, node or flow.
    ReservationRemoved "reservation-removed" Information,
    /// A principal got less of the processor, or of a link, than promised, over 10 s. Subject: the principal.
    PromiseBroken "promise-broken" Error,
    /// A principal gets its promised share of the processor, or of a link, again. Subject: the principal.
    PromiseKept "promise-kept" Information,
    /// Slices of a principal began after its deadline, in the past 10 s. Subject: the principal.
    DeadlinesMissed "deadlines-missed" Warning,
    /// Core or a principal has dropped packets for 10 s, because they need more than its share of the
    /// processor. Subject: the principal, or `core`.
    Overloaded "overloaded" Warning,
    /// Core or a principal has dropped no packets for 10 s after an overload. Subject: the principal, or
    /// `core`.
    OverloadEnded "overload-ended" Information,
    /// A table or memory is nearly full, or a port loses packets continuously. Subject: the table, memory or
    /// port.
    ThresholdExceeded "threshold-exceeded" Warning,
    /// A table, a memory or a port is below its threshold again. Subject: the table, memory or port.
    ThresholdCleared "threshold-cleared" Information,
    /// The handler of a request panicked: its client got the status 500. Subject: method and path.
    HandlerPanicked "handler-panicked" Error,
    /// The audit log lost lines, because of a write error or a slow disk. Subject: its file.
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

/// Event that is not yet in the log, so it has no number.
#[derive(Clone, Debug, PartialEq)]
pub struct Occurrence {
    /// Kind of the event.
    pub kind: EventKind,
    /// Subject of the event; [`EventKind::meaning`] explains it.
    pub subject: String,
    /// Text of the event, in one sentence.
    pub text: String,
    /// Details of the event for programs.
    pub details: Map<String, Value>,
}

/// Entry of the event log: one event, or several equal ones combined.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Event {
    /// Number of the event: 1 for the first event of a router, then one more for each.
    pub number: u64,
    /// Time of the event (date and time, UTC); of several combined events, the time of the last.
    pub time: String,
    /// Kind of the event.
    pub kind: EventKind,
    /// Subject of the event.
    pub subject: String,
    /// Severity of the event.
    pub severity: Severity,
    /// Text of the event, in one sentence; of several combined events, the text of the last.
    pub text: String,
    /// Number of events that this entry combines.
    pub count: u64,
    /// Details of the event for programs.
    pub details: Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_equal_their_json_form() {
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
