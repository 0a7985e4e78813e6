//! Single flows in text form: checks that a flow is complete, and converts it to its canonical spelling.

use millrace_classify::{Filter, PortRange};

/// Example of a complete flow.
const EXAMPLE: &str = "src 10.0.0.2 dst 10.1.0.2 proto udp sport 4000 dport 5060 in lan";

/// Returns a single flow in its canonical spelling: `src A dst B proto P sport N dport N in PORT`, without
/// ports if the protocol has none.
///
/// # Errors
/// Returns a text with an example. It names the missing parts of the flow key, or the parts that don't belong
/// to one.
pub fn one_flow(text: &str) -> Result<String, String> {
    let filter: Filter = text.parse().map_err(|error| format!("flow {text:?}: {error}"))?;
    let problem = |what: String| Err(format!("flow {text:?}: {what}; one flow is written {EXAMPLE:?}"));
    let missing = missing(&filter);
    if !missing.is_empty() {
        return problem(format!("{} is missing", missing.join(", ")));
    }
    let strange = beyond(&filter);
    if !strange.is_empty() {
        return problem(format!(
            "remove {}, because a flow has only addresses, protocol, ports and incoming port",
            strange.join(", ")
        ));
    }
    Ok(filter.to_string())
}

/// Returns a flow in canonical spelling with the ingress port removed. Flows that differ only in their
/// ingress port share a queue.
#[must_use]
pub fn without_incoming(flow: &str) -> &str {
    flow.rsplit_once(" in ").map_or(flow, |(before, _)| before)
}

/// Returns the parts of a complete flow key that are missing in the filter.
fn missing(filter: &Filter) -> Vec<&'static str> {
    let is_host = |net: Option<ipnet::IpNet>| net.is_some_and(|net| net.prefix_len() == net.max_prefix_len());
    let is_one = |range| matches!(range, PortRange::Ports { first, last } if first == last);
    let has_ports = filter.protocol().is_some_and(millrace_wire::Protocol::has_ports);
    let parts = [
        ("`src ADDRESS`", is_host(filter.source())),
        ("`dst ADDRESS`", is_host(filter.destination())),
        ("`proto udp` or another protocol", filter.protocol().is_some()),
        ("`sport NUMBER`", !has_ports || is_one(filter.source_port())),
        ("`dport NUMBER`", !has_ports || is_one(filter.destination_port())),
        ("`in PORT`", filter.incoming().is_some()),
    ];
    parts.into_iter().filter(|(_, is_there)| !is_there).map(|(part, _)| part).collect()
}

/// Returns the conditions of the filter that are not part of a flow key.
fn beyond(filter: &Filter) -> Vec<&'static str> {
    let parts = [
        ("`flags`", filter.tcp_flags().is_some()),
        ("`tag`", filter.tag().is_some()),
        ("`exceptions`", filter.exceptions().is_some()),
        ("`dscp`", filter.dscp().is_some()),
    ];
    parts.into_iter().filter(|(_, is_there)| *is_there).map(|(part, _)| part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_spellings_of_a_flow_become_one() {
        for text in [
            EXAMPLE,
            "in lan proto 17 dport 5060 sport 4000 dst 10.1.0.2/32 src 10.0.0.2",
            "<10.0.0.2, 10.1.0.2, UDP, 4000, 5060, lan>",
        ] {
            assert_eq!(one_flow(text).as_deref(), Ok(EXAMPLE), "{text}");
        }
        assert_eq!(without_incoming(EXAMPLE), "src 10.0.0.2 dst 10.1.0.2 proto udp sport 4000 dport 5060");
        let without_ports = "src 2001:db8::1 dst 2001:db8::2 proto esp in lan";
        assert_eq!(one_flow(without_ports).as_deref(), Ok(without_ports));
    }

    #[test]
    fn incomplete_flow_names_its_missing_parts_and_an_example() {
        for (text, problem) in [
            ("src 10.0.0.2 dst 10.1.0.2 in lan", "`proto udp` or another protocol is missing"),
            ("src 10.0.0.2 dst 10.1.0.2 proto tcp in lan", "`sport NUMBER`, `dport NUMBER` is missing"),
            (
                "src 10.0.0.2 dst 10.1.0.2 proto udp sport 4000-4001 dport 1 in lan",
                "`sport NUMBER` is missing",
            ),
            ("src 10.0.0.2 dst 10.1.0.2 proto udp sport 1 dport 1", "`in PORT` is missing"),
            ("src 10.0.0.0/24 dst 10.1.0.2 proto udp sport 1 dport 1 in lan", "`src ADDRESS` is missing"),
            ("src 10.0.0.2 dst 10.1.0.2 proto udp sport 1 dport 1 in lan dscp ef", "remove `dscp`"),
        ] {
            let refused = one_flow(text).unwrap_err();
            assert!(refused.contains(problem), "{refused}");
            assert!(refused.contains(EXAMPLE), "{refused}");
        }
        assert!(one_flow("from here").unwrap_err().starts_with("flow \"from here\": "));
    }
}
