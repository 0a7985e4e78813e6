//! Actions of filters in text form: parser and printer.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use millrace_units::nearest;

use super::quantity::{Bits, Size};

/// Action of a filter on the packets that it matches. The names of ports, instances and queues in the action
/// are not looked up yet.
///
/// ```text
/// accept | drop | reject | host | port NAME [via ADDRESS] |
/// ports NAME [via ADDRESS],NAME … | copy-to NAME [via ADDRESS][,NAME …] |
/// copy INSTANCE | instance INSTANCE | queue NAME | police RATE [burst SIZE] | principal NAME
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FilterAction {
    /// Exempts the packets from filters of lower priority at the same gate.
    Accept,
    /// Drops the packets silently.
    Drop,
    /// Drops the packets, and sends their sources the ICMP error "prohibited".
    Reject,
    /// Delivers the packets to the host: the kernel, or the router's own stack.
    Host,
    /// Sends the packets out of the first of these ports, and copies out of the other ports, regardless of
    /// the route.
    Ports(Vec<WayOut>),
    /// Sends copies of the packets out of these ports.
    CopyTo(Vec<WayOut>),
    /// Passes copies of the packets to an instance.
    Copy(String),
    /// Passes the packets to an instance.
    Instance(String),
    /// Puts the packets into this queue of their egress port.
    Queue(String),
    /// Forwards packets up to a rate and drops the excess.
    Police(Policing),
    /// Gives the packets a principal: it pays for the calls of bindings that name none, and packets without a
    /// queue get its queue.
    Principal(String),
}

/// Size of a policer's token bucket: from 1,514 bytes (a packet of 1,500 bytes with its link header) to 64
/// MiB.
type BurstSize = Size<1_514, { 1 << 26 }>;

/// Rate limit of the packets of a filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policing {
    /// Rate in bits per second. It includes link headers.
    pub rate: Bits,
    /// Burst in bytes.
    pub burst: u32,
}

impl Policing {
    /// Valid rates, in bits per second.
    const RATES: RangeInclusive<u64> = 1_000..=1_000_000_000_000;

    /// Returns the default burst: 50 ms at the rate, at least 16 KiB and at most 16 MiB.
    fn usual_burst(rate: Bits) -> u32 {
        (rate.0 / 8 / 20).clamp(16 << 10, 16 << 20) as u32
    }

    fn parse(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (rate, burst) = match words[..] {
            [rate] => (rate, None),
            [rate, "burst", burst] => (rate, Some(burst)),
            _ => return Err(format!("police takes `RATE` or `RATE burst SIZE`, not {text:?}")),
        };
        let rate: Bits = rate.parse()?;
        if !Self::RATES.contains(&rate.0) {
            return Err(format!("police rate must be 1kbit to 1000gbit, not {rate}"));
        }
        let burst = burst.map(str::parse::<BurstSize>).transpose()?;
        Ok(Self { rate, burst: burst.map_or_else(|| Self::usual_burst(rate), BurstSize::bytes_u32) })
    }
}

/// Egress port of an action, and optionally a neighbour.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WayOut {
    /// Name of the port.
    pub port: String,
    /// Neighbour that gets the packets. If it is `None`, each packet is sent to its destination address.
    pub via: Option<IpAddr>,
}

/// Keywords of actions, each with the form of its arguments.
const FORMS: [(&str, &str); 12] = [
    ("accept", ""),
    ("drop", ""),
    ("reject", ""),
    ("host", ""),
    ("port", " NAME [via ADDRESS]"),
    ("ports", " NAME [via ADDRESS],NAME [via ADDRESS]"),
    ("copy-to", " NAME [via ADDRESS][,NAME [via ADDRESS]]"),
    ("copy", " INSTANCE"),
    ("instance", " INSTANCE"),
    ("queue", " NAME"),
    ("police", " RATE [burst SIZE]"),
    ("principal", " NAME"),
];

impl FilterAction {
    /// Returns the default gate of the action; `None` if the filter must name its gate.
    pub fn default_gate(&self) -> Option<&'static str> {
        match self {
            Self::Accept | Self::Drop | Self::Reject | Self::Host | Self::Ports(_) => Some("route"),
            Self::CopyTo(_) | Self::Copy(_) => Some("tap"),
            Self::Queue(_) | Self::Principal(_) => Some("schedule"),
            Self::Police(_) => Some("firewall"),
            Self::Instance(_) => None,
        }
    }

    /// Returns the ports that the action names; empty for an action without ports.
    pub fn ways(&self) -> &[WayOut] {
        match self {
            Self::Ports(ways) | Self::CopyTo(ways) => ways,
            _ => &[],
        }
    }

    /// Returns the principal that the action gives to the packets; `None` for an action without one.
    pub fn principal(&self) -> Option<&str> {
        match self {
            Self::Principal(name) => Some(name),
            _ => None,
        }
    }

    /// Returns the instance that the action names; `None` for an action without one.
    pub fn instance(&self) -> Option<&str> {
        match self {
            Self::Copy(name) | Self::Instance(name) => Some(name),
            _ => None,
        }
    }
}

impl FromStr for FilterAction {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (keyword, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let rest = rest.trim();
        let Some((_, form)) = FORMS.iter().find(|(known, _)| *known == keyword) else {
            return Err(unknown(keyword));
        };
        // This is true in two cases: arguments follow a keyword that takes none, or a keyword lacks its
        // arguments.
        if form.is_empty() != rest.is_empty() {
            return Err(format!("wrong or missing arguments of action {keyword:?}: write `{keyword}{form}`"));
        }
        Ok(match keyword {
            "accept" => Self::Accept,
            "drop" => Self::Drop,
            "reject" => Self::Reject,
            "host" => Self::Host,
            "port" => match ways(rest)? {
                ways if ways.len() == 1 => Self::Ports(ways),
                _ => {
                    return Err(format!(
                        "action port takes one port: for several ports, write `ports {rest}`"
                    ));
                }
            },
            "ports" => Self::Ports(ways(rest)?),
            "copy-to" => Self::CopyTo(ways(rest)?),
            "copy" => Self::Copy(name(rest)?),
            "queue" => Self::Queue(name(rest)?),
            "police" => Self::Police(Policing::parse(rest)?),
            "principal" => Self::Principal(name(rest)?),
            _ => Self::Instance(name(rest)?),
        })
    }
}

fn unknown(keyword: &str) -> String {
    match nearest(keyword, FORMS.iter().map(|(known, _)| *known)) {
        Some(near) => format!("there is no action {keyword:?}: did you mean {near:?}?"),
        None => {
            let forms: Vec<String> = FORMS.iter().map(|(known, form)| format!("`{known}{form}`")).collect();
            format!("there is no action {keyword:?}: the actions are {}", forms.join(", "))
        }
    }
}

fn name(text: &str) -> Result<String, String> {
    match text.split_whitespace().collect::<Vec<_>>()[..] {
        [name] if !name.contains(',') => Ok(name.to_owned()),
        _ => Err(format!("{text:?} is not one name: give a single name, without blanks and commas")),
    }
}

fn ways(text: &str) -> Result<Vec<WayOut>, String> {
    let ways: Vec<WayOut> = text.split(',').map(way).collect::<Result<_, _>>()?;
    for (at, way) in ways.iter().enumerate() {
        if ways[..at].iter().any(|other| other.port == way.port) {
            return Err(format!("port {:?} is listed twice: list each port once", way.port));
        }
    }
    Ok(ways)
}

fn way(text: &str) -> Result<WayOut, String> {
    let address =
        |text: &str| text.parse::<IpAddr>().map_err(|_| format!("{text:?} after `via` is no IP address"));
    match text.split_whitespace().collect::<Vec<_>>()[..] {
        [port] if port != "via" => Ok(WayOut { port: port.to_owned(), via: None }),
        [port, "via", via] => Ok(WayOut { port: port.to_owned(), via: Some(address(via)?) }),
        _ => Err(format!("{:?} names no port or route: write `PORT` or `PORT via ADDRESS`", text.trim())),
    }
}

impl fmt::Display for WayOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.via {
            Some(via) => write!(f, "{} via {via}", self.port),
            None => f.write_str(&self.port),
        }
    }
}

impl fmt::Display for FilterAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ways = |ways: &[WayOut]| ways.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        match self {
            Self::Accept => f.write_str("accept"),
            Self::Drop => f.write_str("drop"),
            Self::Reject => f.write_str("reject"),
            Self::Host => f.write_str("host"),
            Self::Ports(to) if to.len() == 1 => write!(f, "port {}", ways(to)),
            Self::Ports(to) => write!(f, "ports {}", ways(to)),
            Self::CopyTo(to) => write!(f, "copy-to {}", ways(to)),
            Self::Copy(name) => write!(f, "copy {name}"),
            Self::Instance(name) => write!(f, "instance {name}"),
            Self::Queue(name) => write!(f, "queue {name}"),
            Self::Principal(name) => write!(f, "principal {name}"),
            Self::Police(Policing { rate, burst }) => {
                write!(f, "police {rate} burst {}", BurstSize::clamped((*burst).into()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn refused(text: &str) -> String {
        text.parse::<FilterAction>().unwrap_err()
    }

    #[test]
    fn actions_round_trip() {
        let way = |port: &str, via: Option<&str>| WayOut {
            port: port.into(),
            via: via.map(|via| via.parse().unwrap()),
        };
        let cases = [
            ("accept", FilterAction::Accept),
            ("drop", FilterAction::Drop),
            (" reject ", FilterAction::Reject),
            ("host", FilterAction::Host),
            ("port lan", FilterAction::Ports(vec![way("lan", None)])),
            ("port lan via fd00::1", FilterAction::Ports(vec![way("lan", Some("fd00::1"))])),
            (
                "ports a via 10.0.0.1, b",
                FilterAction::Ports(vec![way("a", Some("10.0.0.1")), way("b", None)]),
            ),
            ("copy-to probe", FilterAction::CopyTo(vec![way("probe", None)])),
            ("copy stats1", FilterAction::Copy("stats1".into())),
            ("queue voice", FilterAction::Queue("voice".into())),
            ("principal video", FilterAction::Principal("video".into())),
            ("instance stats1", FilterAction::Instance("stats1".into())),
            ("police 10mbit", FilterAction::Police(Policing { rate: Bits(10_000_000), burst: 62_500 })),
            ("police 8kbit burst 3000B", FilterAction::Police(Policing { rate: Bits(8_000), burst: 3_000 })),
        ];
        for (text, action) in cases {
            assert_eq!(text.parse(), Ok(action), "{text}");
        }
    }

    #[test]
    fn invalid_actions_are_refused_with_a_remedy() {
        for (text, problem) in [
            ("dorp", "did you mean \"drop\"?"),
            ("lane 3", "the actions are `accept`, `drop`, `reject`, `host`, `port NAME [via ADDRESS]`"),
            ("", "the actions are"),
            ("drop all", "action \"drop\": write `drop`"),
            ("port", "write `port NAME [via ADDRESS]`"),
            ("port a,b", "write `ports a,b`"),
            ("port a via", "names no port or route"),
            ("port a via b", "\"b\" after `via` is no IP address"),
            ("port via 10.0.0.1", "names no port or route"),
            ("ports a,,b", "names no port or route"),
            ("ports a,b,a", "port \"a\" is listed twice"),
            ("copy", "write `copy INSTANCE`"),
            ("instance a b", "\"a b\" is not one name"),
            ("principal", "write `principal NAME`"),
            ("police", "write `police RATE [burst SIZE]`"),
            ("police fast", "is no rate"),
            ("police 10bit", "police rate must be 1kbit to 1000gbit, not 10bit"),
            ("police 10mbit 5", "police takes `RATE` or `RATE burst SIZE`"),
            ("police 10mbit burst 64B", "1514B to 64MiB"),
            ("police 10mbit burst 3000", "write \"3000B\""),
            ("police 5", "write \"5mbit\""),
        ] {
            assert!(refused(text).contains(problem), "{text}: {}", refused(text));
        }
    }

    proptest! {
        #[test]
        fn printed_action_parses(
            ways in prop::collection::btree_map("[a-z][a-z0-9.-]{0,8}", any::<Option<IpAddr>>(), 1..4),
            kind in 0..8,
            rate in Policing::RATES,
            burst in 1_514..=1_u32 << 26,
        ) {
            let name = ways.keys().next().unwrap().clone();
            let ways: Vec<WayOut> = ways.into_iter().map(|(port, via)| WayOut { port, via }).collect();
            prop_assume!(ways.iter().all(|way| way.port != "via"));
            let action = match kind {
                0 => FilterAction::Drop,
                1 => FilterAction::Host,
                2 => FilterAction::Ports(ways),
                3 => FilterAction::CopyTo(ways),
                4 => FilterAction::Copy(name),
                5 => FilterAction::Police(Policing { rate: Bits(rate), burst }),
                6 => FilterAction::Principal(name),
                _ => FilterAction::Instance(name),
            };
            prop_assert_eq!(action.to_string().parse(), Ok(action));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,40}") {
            let _ = text.parse::<FilterAction>();
        }
    }
}
