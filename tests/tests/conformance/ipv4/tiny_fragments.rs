//! First fragments with a cut transport header: none gets past filters or plugins that check ports or flags
//! (RFC 1858, 3.1; RFC 7112).

use millrace_packet::DropReason;
use millrace_tests::{Ipv4Frame, Ipv6Frame, Scenario};

const PORT_FILTER: &str = "[[instance]]\nplugin = \"port-filter\"\nname = \"ssh\"\n\
     settings = { ports = \"22\", protocol = \"tcp\" }\n\
     [[bind]]\ninstance = \"ssh\"\ngate = \"firewall\"\nfilter = \"proto tcp dport 22\"\n";
const POLICER: &str = "[[filter]]\nmatch = \"dport 22\"\naction = \"police 1kbit burst 2000B\"\n";
const FLAGS: &str =
    "[[filter]]\nmatch = \"proto tcp flags syn/syn+ack\"\naction = \"police 1kbit burst 2000B\"\n";
const COPY: &str = "[[filter]]\nmatch = \"dport 22\"\naction = \"copy-to c via 10.3.0.2\"\n";
const WAY: &str = "[[filter]]\nmatch = \"dport 22\"\naction = \"port c via 10.3.0.2\"\ngate = \"route\"\n";

#[test]
fn cut_first_fragment_is_dropped_while_a_binding_names_ports_or_flags() {
    for more in [PORT_FILTER, POLICER, FLAGS, COPY, WAY] {
        let mut router = Scenario::with(more);
        let ssh = Ipv4Frame::tcp().ports(1000, 22).payload(&[7; 40]).id(9);
        for length in [8, 16] {
            let pieces = ssh.pieces(length);
            router.expect_drop("a", &pieces[0], DropReason::Ip4Fragment);
        }
        for length in [8, 16] {
            let pieces = Ipv6Frame::tcp().ports(1000, 22).payload(&[7; 40]).pieces(length, 9);
            router.expect_drop("a", &pieces[0], DropReason::Ip6HeaderChain);
        }
        // A fragment with a whole transport header passes or fails by its ports. A UDP header has 8 octets.
        for length in [24, 32] {
            let pieces = Ipv4Frame::tcp().ports(1000, 23).payload(&[7; 40]).id(9).pieces(length);
            router.expect_forwarded("a", &pieces[0], "b");
        }
        for piece in Ipv4Frame::udp().ports(1000, 23).payload(&[7; 16]).id(10).pieces(8) {
            router.expect_forwarded("a", &piece, "b");
        }
        // For a protocol without ports, addresses and protocol decide.
        router.expect_forwarded("a", &Ipv4Frame::raw(50).payload(&[7; 8]).more_fragments(), "b");
    }
}

#[test]
fn port_filter_bound_by_port_is_passed_by_no_fragments_of_a_packet() {
    for length in [8, 16, 24, 32] {
        let mut router = Scenario::with(PORT_FILTER);
        let ssh = Ipv4Frame::tcp().ports(1000, 22).payload(&[7; 40]).id(9);
        let mut passed = Vec::new();
        for piece in ssh.pieces(length) {
            router.send("a", &piece);
            passed.extend(router.take("b").into_iter().map(|output| output.ipv4().fragment_offset()));
        }
        assert!(!passed.contains(&0), "the first of {length} octets passes: {passed:?}");
    }
}

#[test]
fn cut_first_fragment_passes_where_no_binding_judges() {
    for more in ["", "[[filter]]\nmatch = \"src 10.0.0.0/8\"\naction = \"accept\"\n"] {
        let mut router = Scenario::with(more);
        let pieces = Ipv4Frame::tcp().ports(1000, 22).payload(&[7; 40]).id(9).pieces(16);
        pieces.iter().for_each(|piece| drop(router.expect_forwarded("a", piece, "b")));
        let pieces = Ipv6Frame::tcp().ports(1000, 22).payload(&[7; 40]).pieces(16, 9);
        router.expect_forwarded("a", &pieces[0], "b");
    }
}
