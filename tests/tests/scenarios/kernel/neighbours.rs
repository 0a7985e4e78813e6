//! Packets held for neighbour resolution.

use std::time::Duration;

use millrace_testkit::{Ground, Line, Millrace, eventually};

/// Pings as soon as a link is up. The kernel resolves no neighbour until duplicate address detection of its
/// own link-local address has ended, after 1 to 2 seconds.
#[test]
fn no_ping_is_lost_while_a_link_becomes_active() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    let router = Millrace::start(&line.r, "--port r1 --port r2");
    line.h1.run("ping -c 1 fd00:2::2");
    for key in ["accept_dad", "dad_transmits"] {
        line.r.sysctl(&format!("ipv6/conf/r2/{key}"), "1");
    }
    for round in 0..3 {
        line.r.ip("link set r2 down");
        line.r.ip("link set r2 up\naddress add fd00:2::1/64 dev r2");
        eventually("the router has the prefix's route", Duration::from_secs(5), || {
            let routes = router.json(&["show", "routes"]);
            routes.as_array()?.iter().any(|route| route["to"] == "fd00:2::/64").then_some(())
        });
        let output = line.h1.run("ping -c 20 -i 0.05 -W 5 fd00:2::2");
        assert!(output.contains(" 20 received"), "round {round}: {output}");
    }
    router.assert_conservation();
}
