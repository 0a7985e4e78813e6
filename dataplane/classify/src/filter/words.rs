//! Words of filter expressions beyond the keyword syntax.

use super::Field;

/// Words that are a complete condition: word, field and value.
pub(super) const WORDS: [(&str, Field, &str); 9] = [
    ("tcp", Field::Protocol, "tcp"),
    ("udp", Field::Protocol, "udp"),
    ("sctp", Field::Protocol, "sctp"),
    ("icmp", Field::Protocol, "icmp"),
    ("icmp6", Field::Protocol, "icmpv6"),
    ("icmpv6", Field::Protocol, "icmpv6"),
    ("igmp", Field::Protocol, "igmp"),
    ("esp", Field::Protocol, "esp"),
    ("gre", Field::Protocol, "gre"),
];

/// Words that stand for source or destination: word, and the fields for both.
pub(super) const EITHER: [(&str, [Field; 2]); 4] = [
    ("host", [Field::Source, Field::Destination]),
    ("net", [Field::Source, Field::Destination]),
    ("port", [Field::SourcePort, Field::DestinationPort]),
    ("portrange", [Field::SourcePort, Field::DestinationPort]),
];

/// Operators, and words for address families.
const OTHERS: [&str; 5] = ["not", "or", "and", "ip", "ip6"];

/// Returns the words that expressions have and the keyword syntax lacks.
pub(super) fn words() -> impl Iterator<Item = &'static str> {
    let alone = WORDS.iter().map(|(word, ..)| *word);
    alone.chain(EITHER.iter().map(|(word, _)| *word)).chain(OTHERS)
}
