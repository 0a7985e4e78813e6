//! Tests of findings against a real kernel, in network namespaces.

use std::collections::BTreeMap;

use super::{Ours, PolicyFinding, PolicyKind, inspect, queueing};
use crate::test_namespace::{in_namespace, ip, run, veth_pair};

fn forwarding_router() -> Vec<u32> {
    veth_pair();
    for switch in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        std::fs::write(format!("/proc/sys/net/{switch}"), "1").unwrap();
    }
    ["lan", "far"].map(|name| nix::net::if_::if_nametoindex(name).unwrap()).into()
}

fn findings(ports: &[u32]) -> Vec<PolicyFinding> {
    inspect(ports, &Ours::default()).unwrap()
}

#[track_caller]
fn one(ports: &[u32], kind: PolicyKind, words: &str) {
    let findings = findings(ports);
    assert!(
        findings.len() == 1 && findings[0].kind == kind && findings[0].to_string().contains(words),
        "wanted one about {words:?}: {findings:#?}"
    );
}

#[test]
fn a_plain_router_has_no_findings() {
    in_namespace(|| async { assert_eq!(findings(&forwarding_router()), []) });
}

#[test]
fn forwarding_turned_off_is_named_for_both_families() {
    in_namespace(|| async {
        let ports = forwarding_router();
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "0").unwrap();
        one(&ports, PolicyKind::Forwarding, "net.ipv4.ip_forward=1 is not set");
        std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "0").unwrap();
        assert_eq!(findings(&ports).len(), 2);
    });
}

#[test]
fn nftables_chains_count_by_hook_rules_and_policy() {
    in_namespace(|| async {
        let ports = forwarding_router();
        let nft = |command: &str| drop(run("nft", command));
        nft("add table inet t");
        nft("add chain inet t arriving { type filter hook input priority 0 ; policy drop ; }");
        nft("add chain inet t passing { type filter hook forward priority 0 ; }");
        assert_eq!(findings(&ports), []);
        nft("add rule inet t passing ip daddr 10.9.0.0/16 drop");
        one(&ports, PolicyKind::Nftables, "inet t passing at hook forward has 1 rule");
        nft("flush chain inet t passing");
        nft("chain inet t passing { policy drop ; }");
        one(&ports, PolicyKind::Nftables, "no rule but the policy drop");
        nft("add table inet t { flags dormant ; }");
        assert_eq!(findings(&ports), []);
        nft("delete table inet t");
        nft("add table netdev n");
        nft("add chain netdev n i { type filter hook ingress device lan priority 0 ; }");
        nft("add rule netdev n i udp dport 9 drop");
        one(&ports, PolicyKind::Nftables, "netdev n i at hook ingress");
        assert_eq!(findings(&ports[1..]), [], "the chain is on the other device");
    });
}

#[test]
fn policy_rules_other_than_the_defaults_are_named() {
    in_namespace(|| async {
        let ports = forwarding_router();
        ip("rule add from 10.7.0.0/16 lookup 100");
        one(&ports, PolicyKind::Rule, "from 10.7.0.0/16 lookup 100");
        ip("rule del from 10.7.0.0/16 lookup 100");
        ip("-6 rule add fwmark 5 iif lan lookup 7");
        one(&ports, PolicyKind::Rule, "fwmark 0x5");
        ip("-6 rule flush");
        assert!(findings(&ports).iter().any(|finding| finding.what.contains("main is missing")));
    });
}

#[test]
fn queueing_disciplines_and_filters_are_named() {
    in_namespace(|| async {
        let ports = forwarding_router();
        let tc = |command: &str| drop(run("tc", command));
        tc("qdisc add dev lan root tbf rate 1mbit burst 10k latency 10ms");
        one(&ports, PolicyKind::TrafficControl, "tbf");
        assert_eq!(queueing(&ports).unwrap(), BTreeMap::from([(ports[0], "tbf".to_owned())]));
        for plain in ["pfifo limit 100", "bfifo limit 100000", "pfifo_fast"] {
            tc(&format!("qdisc replace dev lan root {plain}"));
            assert_eq!(
                (findings(&ports), queueing(&ports).unwrap()),
                (Vec::new(), BTreeMap::new()),
                "{plain}"
            );
        }
        tc("qdisc del dev lan root");
        tc("qdisc add dev far clsact");
        assert_eq!(findings(&ports), []);
        tc("filter add dev far ingress protocol ip u32 match u32 0 0 flowid 1:1");
        one(&ports, PolicyKind::TrafficControl, "tc filters at ingress: u32");
        tc("filter del dev far ingress");
        tc("filter add dev far egress protocol ip u32 match u32 0 0 flowid 1:1");
        one(&ports, PolicyKind::TrafficControl, "tc filters at egress: u32");
    });
}

#[test]
fn bridges_macvlans_and_strict_reverse_path_are_named() {
    in_namespace(|| async {
        let ports = forwarding_router();
        ip("link add bridge1 type bridge");
        ip("link set far master bridge1");
        one(&ports, PolicyKind::Stacked, "belongs to the bridge bridge1");
        ip("link set far nomaster");
        ip("link add mv link lan type macvlan");
        one(&ports, PolicyKind::Stacked, "macvlan mv is built on the port");
        ip("link del mv");
        std::fs::write("/proc/sys/net/ipv4/conf/lan/rp_filter", "1").unwrap();
        one(&ports, PolicyKind::ReversePath, "rp_filter is strict (lan)");
    });
}

#[test]
fn ipsec_policies_for_forwarded_packets_are_named() {
    in_namespace(|| async {
        let ports = forwarding_router();
        let add = "xfrm policy add src 10.7.0.0/16 dst 10.8.0.0/16 dir";
        let supported = std::process::Command::new("ip").args(format!("{add} in").split(' ')).status();
        if !supported.is_ok_and(|status| status.success()) {
            assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "the kernel has no xfrm");
            println!("skipped: the kernel has no xfrm");
            return;
        }
        assert_eq!(findings(&ports), [], "incoming policies concern the host itself");
        ip(&format!("{add} fwd action block"));
        one(&ports, PolicyKind::Xfrm, "0 outgoing, 1 forwarding");
    });
}

#[test]
fn missing_port_is_an_error_with_its_name() {
    in_namespace(|| async {
        let error = inspect(&[4711], &Ours::default()).unwrap_err();
        assert!(error.to_string().contains("4711"), "{error}");
    });
}
