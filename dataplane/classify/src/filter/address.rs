//! Address prefixes in the syntax of filters.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};

use super::error::Refusal;
use super::port_range::number;

/// Reads `*` (any address of both families), an address, a prefix, or the form `129.252.*` of *Router
/// Plugins*.
pub(super) fn parse(text: &str) -> Result<Option<IpNet>, Refusal> {
    if text == "*" {
        return Ok(None);
    }
    if text.contains('*') {
        return starred(text).map(Some);
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(Some(address.into()));
    }
    let Some((address, length)) = text.split_once('/') else { return Err(no_prefix(text)) };
    let address: IpAddr = address.parse().map_err(|_| no_prefix(text))?;
    let limit = if address.is_ipv4() { 32 } else { 128 };
    let net = number(length, limit)
        .and_then(|length| IpNet::new(address, u8::try_from(length).ok()?).ok())
        .ok_or_else(|| {
        Refusal::new(
            format!("prefix length of {text:?} is out of range or not a number"),
            format!("write {address}/LENGTH with a length from 0 to {limit}"),
        )
    })?;
    without_host_bits(net).map(Some)
}

fn without_host_bits(net: IpNet) -> Result<IpNet, Refusal> {
    let right = net.trunc();
    if right == net {
        return Ok(net);
    }
    Err(Refusal::new(
        format!("{net} has host bits set beyond its prefix length"),
        format!("write {right} for the network or {} for the host", net.addr()),
    ))
}

/// Reads `129.*`, `129.252.*`, `129.*.*.*`: leading bytes, then stars to the end.
fn starred(text: &str) -> Result<IpNet, Refusal> {
    let wrong = || {
        Refusal::new(
            format!("{text:?} is not an IPv4 address with a wildcard"),
            "write one to three octets and a final *, as in 129.252.*, or a prefix, as in 129.252.0.0/16",
        )
    };
    let parts: Vec<_> = text.split('.').collect();
    let leading = parts.iter().take_while(|part| **part != "*").count();
    let (bytes, stars) = parts.split_at_checked(leading).ok_or_else(wrong)?;
    // Allow one star in place of all remaining octets, or one star for each of them.
    if bytes.len() > 3 || stars.iter().any(|part| *part != "*") || (stars.len() > 1 && parts.len() != 4) {
        return Err(wrong());
    }
    let mut address = [0; 4];
    for (byte, part) in address.iter_mut().zip(bytes) {
        *byte = number(part, 255).and_then(|byte| u8::try_from(byte).ok()).ok_or_else(wrong)?;
    }
    let length = 8 * u8::try_from(bytes.len()).map_err(|_| wrong())?;
    Ipv4Net::new(Ipv4Addr::from(address), length).map(IpNet::V4).map_err(|_| wrong())
}

fn no_prefix(text: &str) -> Refusal {
    Refusal::new(
        format!("{text:?} is not an IP address or prefix"),
        "write an address (192.0.2.1, 2001:db8::1), a prefix (10.0.0.0/8, 2001:db8::/32), 129.252.* or *",
    )
}

/// Prints a prefix in the syntax of filters: a single address without a prefix length.
pub(super) fn print(net: &IpNet) -> String {
    if net.prefix_len() == net.max_prefix_len() { net.addr().to_string() } else { net.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_round_trip() {
        for text in ["10.0.0.0/8", "0.0.0.0/0", "192.0.2.1", "2001:db8::/32", "::/0", "2001:db8::1"] {
            assert_eq!(print(&parse(text).unwrap().unwrap()), text);
        }
        assert_eq!(parse("*").unwrap(), None);
    }

    #[test]
    fn stars_stand_for_whole_bytes() {
        for (text, prefix) in [
            ("129.*", "129.0.0.0/8"),
            ("129.252.*", "129.252.0.0/16"),
            ("128.252.153.*", "128.252.153.0/24"),
            ("129.*.*.*", "129.0.0.0/8"),
            ("*.*.*.*", "0.0.0.0/0"),
        ] {
            assert_eq!(print(&parse(text).unwrap().unwrap()), prefix, "{text}");
        }
        for text in ["129.*.1", "129.2*", "1.2.3.4.*", "256.*", "*.1", ".*", "129.*.*", "**", "2001:*"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn invalid_prefixes_are_refused_with_a_correction() {
        assert_eq!(
            parse("10.1.2.3/8").unwrap_err().help,
            "write 10.0.0.0/8 for the network or 10.1.2.3 for the host"
        );
        for text in ["", "10", "10.0.0.0/33", "10.0.0.0/", "::/129", "fe80::1%eth0", "10.0.0.0/+8", "/8"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
