//! Policies of plugin `firewall`, and their parser.

use millrace_plugin_abi::FlowKey;
use millrace_wire::Protocol;

/// Treatment of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// The connection passes.
    Allow,
    /// Its packets are dropped.
    Drop,
    /// Its packets are dropped, and their source gets an ICMP error.
    Reject,
}

impl Action {
    const NAMES: [(&str, Self); 3] = [("allow", Self::Allow), ("drop", Self::Drop), ("reject", Self::Reject)];
}

/// Protocols with names. ICMP stands for IPv4 and IPv6.
const PROTOCOLS: [(&str, Protocol); 4] =
    [("tcp", Protocol::TCP), ("udp", Protocol::UDP), ("sctp", Protocol::SCTP), ("icmp", Protocol::ICMP)];

/// Zone of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ZoneOf {
    /// All ports.
    Any,
    /// The zone with this number.
    Zone(u8),
}

impl ZoneOf {
    #[inline]
    fn contains(self, zone: Option<u8>) -> bool {
        match self {
            Self::Any => true,
            Self::Zone(own) => zone == Some(own),
        }
    }
}

/// Policy for connections from one zone to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Policy {
    /// The policy as written, with single spaces.
    pub text: String,
    pub action: Action,
    from: ZoneOf,
    to: ZoneOf,
    /// Protocol; `None` for all.
    protocol: Option<u8>,
    /// Ranges of destination ports; empty for all.
    ports: Vec<(u16, u16)>,
}

impl Policy {
    /// Parses a policy. `zones` are the names of the zones in the order of their numbers.
    ///
    /// # Errors
    /// Describes the problem, and the expected text.
    pub fn parse(text: &str, zones: &[&str]) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (action, from, to, rest) = match *words.as_slice() {
            [action, from, "to", to, ref rest @ ..] if rest.len() <= 2 => (action, from, to, rest),
            _ => {
                return Err(format!(
                    "{text:?} is no policy; write ACTION ZONE to ZONE [PROTOCOL [PORTS]], as in \"allow lan to wan tcp 80,443\""
                ));
            }
        };
        let found = Action::NAMES.iter().find(|(name, _)| *name == action);
        let (_, action) = *found
            .ok_or_else(|| format!("{text:?}: unknown action {action:?}; give allow, drop or reject"))?;
        let zone = |name: &str| zone(name, zones).map_err(|problem| format!("{text:?}: {problem}"));
        let protocol = rest.first().map(|name| protocol(name)).transpose();
        let protocol = protocol.map_err(|problem| format!("{text:?}: {problem}"))?;
        let ports = rest.get(1).map(|list| ports(list)).transpose();
        let ports = ports.map_err(|problem| format!("{text:?}: {problem}"))?.unwrap_or_default();
        if !ports.is_empty() && !protocol.is_some_and(|protocol| Protocol(protocol).has_ports()) {
            return Err(format!("{text:?}: this protocol has no ports; give ports after tcp, udp or sctp"));
        }
        Ok(Self { text: words.join(" "), action, from: zone(from)?, to: zone(to)?, protocol, ports })
    }

    /// Returns whether the policy decides about connections of a flow between these zones; `None` for ports without a
    /// zone.
    #[inline]
    pub fn matches(&self, (from, to): (Option<u8>, Option<u8>), key: &FlowKey) -> bool {
        let port = key.destination_port;
        self.from.contains(from)
            && self.to.contains(to)
            && self.protocol.is_none_or(|protocol| protocol == unified(key.protocol))
            && (self.ports.is_empty()
                || self.ports.iter().any(|(first, last)| (*first..=*last).contains(&port)))
    }
}

/// Returns the protocol number, with that of ICMP for ICMPv6.
#[inline]
fn unified(protocol: u8) -> u8 {
    if Protocol(protocol) == Protocol::ICMPV6 { Protocol::ICMP.0 } else { protocol }
}

fn zone(name: &str, zones: &[&str]) -> Result<ZoneOf, String> {
    if name == "any" {
        return Ok(ZoneOf::Any);
    }
    let found = zones.iter().position(|zone| *zone == name);
    found.map(|number| ZoneOf::Zone(number as u8)).ok_or_else(|| {
        let known = zones.iter().fold(String::new(), |known, zone| format!("{known}, {zone}"));
        format!("no zone {name:?}; zones here: any{known}")
    })
}

fn protocol(name: &str) -> Result<u8, String> {
    let known = PROTOCOLS.iter().find(|(known, _)| *known == name).map(|(_, protocol)| protocol.0);
    let number = || name.parse::<u8>().ok().filter(|_| name.bytes().all(|byte| byte.is_ascii_digit()));
    known.or_else(number).map(unified).ok_or_else(|| {
        format!("unknown protocol {name:?}; give tcp, udp, sctp, icmp or a number from 0 to 255")
    })
}

fn ports(list: &str) -> Result<Vec<(u16, u16)>, String> {
    let number = |digits: &str| -> Option<u16> {
        digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (Some(first), Some(last)) = (number(first), number(last)) else {
            return Err(format!(
                "{text:?} is not a port; give ports from 0 to 65535 and ranges, as in 80,1000-2000"
            ));
        };
        if first > last {
            return Err(format!("range {text} starts above its end; give {last}-{first}"));
        }
        Ok((first, last))
    };
    list.split(',').map(range).collect()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use millrace_units::PortId;

    use super::*;

    const ZONES: [&str; 2] = ["lan", "wan"];
    const LAN: Option<u8> = Some(0);
    const WAN: Option<u8> = Some(1);

    fn key(protocol: u8, port: u16) -> FlowKey {
        let any = Ipv4Addr::LOCALHOST;
        FlowKey::v4(any, any, protocol, (1, port), PortId(1))
    }

    #[test]
    fn policies_match_zones_protocols_and_ports() {
        let parse = |text| Policy::parse(text, &ZONES).unwrap();
        let policy = parse("allow  lan to wan tcp 80,8000-8999");
        assert_eq!(
            (policy.action, policy.text.as_str()),
            (Action::Allow, "allow lan to wan tcp 80,8000-8999")
        );
        for (zones, key, expected) in [
            ((LAN, WAN), key(6, 80), true),
            ((LAN, WAN), key(6, 8999), true),
            ((LAN, WAN), key(6, 9000), false),
            ((LAN, WAN), key(17, 80), false),
            ((WAN, LAN), key(6, 80), false),
            ((LAN, None), key(6, 80), false),
        ] {
            assert_eq!(policy.matches(zones, &key), expected, "{zones:?} {key}");
        }
        assert!(parse("drop any to any").matches((None, LAN), &key(47, 0)));
        let icmp = parse("reject any to lan icmp");
        assert!(icmp.matches((WAN, LAN), &key(1, 0)) && icmp.matches((WAN, LAN), &key(58, 0)));
        assert!(parse("drop any to any 47").matches((None, None), &key(47, 0)));
    }

    #[test]
    fn wrong_policies_are_refused_with_the_right_form() {
        for (text, expected) in [
            ("allow lan wan", "write ACTION ZONE to ZONE"),
            ("permit lan to wan", "unknown action \"permit\"; give allow, drop or reject"),
            ("allow lan to dmz", "no zone \"dmz\"; zones here: any, lan, wan"),
            ("allow lan to wan tpc", "unknown protocol \"tpc\"; give tcp, udp, sctp, icmp"),
            ("allow lan to wan tcp 80,http", "\"http\" is not a port"),
            ("allow lan to wan tcp 90-80", "range 90-80 starts above its end; give 80-90"),
            ("allow lan to wan icmp 8", "this protocol has no ports"),
            ("allow lan to wan tcp 80 443", "write ACTION ZONE to ZONE"),
        ] {
            let refused = Policy::parse(text, &ZONES).unwrap_err();
            assert!(refused.contains(expected), "{refused}");
        }
    }
}
