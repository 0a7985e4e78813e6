//! The fields of a filter.

use std::fmt;

/// Field of a filter. The variants are in the order in which filters are compared for specificity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Field {
    /// Prefix of the source address.
    Source,
    /// Prefix of the destination address.
    Destination,
    /// IP protocol.
    Protocol,
    /// Range of source ports.
    SourcePort,
    /// Range of destination ports.
    DestinationPort,
    /// Ingress port.
    Incoming,
    /// TCP flags.
    Flags,
    /// Tag set by a plugin.
    Tag,
    /// Exception bits.
    Exceptions,
    /// Differentiated services code point.
    Dscp,
}

impl Field {
    /// All fields, the most significant first.
    pub const ALL: [Self; 10] = [
        Self::Source,
        Self::Destination,
        Self::Protocol,
        Self::SourcePort,
        Self::DestinationPort,
        Self::Incoming,
        Self::Flags,
        Self::Tag,
        Self::Exceptions,
        Self::Dscp,
    ];

    /// Returns the keyword of the field in a filter's text.
    pub const fn keyword(self) -> &'static str {
        match self {
            Self::Source => "src",
            Self::Destination => "dst",
            Self::Protocol => "proto",
            Self::SourcePort => "sport",
            Self::DestinationPort => "dport",
            Self::Incoming => "in",
            Self::Flags => "flags",
            Self::Tag => "tag",
            Self::Exceptions => "exceptions",
            Self::Dscp => "dscp",
        }
    }

    pub(super) fn from_keyword(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.keyword().eq_ignore_ascii_case(word))
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.keyword())
    }
}
