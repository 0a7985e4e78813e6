//! IP protocols by name or number.

use millrace_units::nearest;
use millrace_wire::Protocol;

use super::error::Refusal;
use super::port_range::number;

/// Further names of some protocols.
const ALIASES: [(&str, Protocol); 3] =
    [("ipv6-icmp", Protocol::ICMPV6), ("icmp6", Protocol::ICMPV6), ("ospfigp", Protocol::OSPF)];

pub(super) fn parse(text: &str) -> Result<Option<Protocol>, Refusal> {
    if text == "*" {
        return Ok(None);
    }
    let name = text.to_ascii_lowercase();
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name).map(|(_, protocol)| *protocol);
    let by_number = || number(text, 255).and_then(|number| u8::try_from(number).ok()).map(Protocol);
    match alias.or_else(|| Protocol::from_name(&name)).or_else(by_number) {
        Some(protocol) => Ok(Some(protocol)),
        None => Err(unknown(text)),
    }
}

fn unknown(text: &str) -> Refusal {
    let names = (0..=u8::MAX).filter_map(|number| Protocol(number).name());
    let help = match nearest(text, names) {
        Some(name) => format!("did you mean {name}?"),
        None => "write a name (tcp, udp, icmp, icmpv6, esp, …), a number from 0 to 255, or *".to_owned(),
    };
    Refusal::new(format!("{text:?} is not an IP protocol"), help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_any_case_numbers_and_stars_are_read() {
        for (text, number) in [
            ("TCP", 6),
            ("udp", 17),
            ("icmpv6", 58),
            ("ipv6-icmp", 58),
            ("igmp", 2),
            ("esp", 50),
            ("255", 255),
        ] {
            assert_eq!(parse(text).unwrap(), Some(Protocol(number)), "{text}");
        }
        for (text, number) in [("ah", 51), ("gre", 47), ("sctp", 132), ("ospf", 89)] {
            assert_eq!(parse(text).unwrap(), Some(Protocol(number)), "{text}");
        }
        assert_eq!(parse("*").unwrap(), None);
    }

    #[test]
    fn unknown_protocols_are_refused_with_the_nearest() {
        assert_eq!(parse("tpc").unwrap_err().help, "did you mean tcp?");
        assert!(parse("256").is_err());
        assert!(parse("").is_err());
    }
}
