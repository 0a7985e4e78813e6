//! Configured routes that the kernel has lost, or refuses for the moment. The router reports them as missing,
//! and keeps trying to add them.

use std::time::Duration;

use millrace_testkit::{Ground, Line, Millrace, eventually};

use super::changes::kernel_has;

/// Configuration of a router between the two hosts.
const BASE: &str = r#"[router]
on-death = "kernel"
[[port]]
name = "lan"
device = "r1"
[[port]]
name = "wan"
device = "r2"
"#;

/// Route with the second host as next hop.
const ROUTE: &str = "[[route]]\nto = \"10.9.0.0/16\"\nvia = \"10.2.0.2\"\n";

/// Time limit for an expected state.
const SOON: Duration = Duration::from_secs(5);

fn start(line: &Line) -> (Millrace, String, String) {
    let file = |name, text: &str| line.write(name, text).display().to_string();
    let (with, without) = (file("with.toml", &format!("{BASE}{ROUTE}")), file("without.toml", BASE));
    (Millrace::start(&line.r, &format!("--config {with}")), with, without)
}

/// Returns the number of missing routes in the status.
fn missing(router: &Millrace) -> Option<u64> {
    router.json(&["show", "status"])["missing_routes"]["count"].as_u64()
}

#[test]
fn route_removed_by_the_kernel_is_reported_missing_and_added_again() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let (router, with, _) = start(&line);
    // An `ip` command removes the route from the kernel.
    line.r.run("ip route del 10.9.0.0/16");
    eventually("it is there again", SOON, || kernel_has(&line, "10.9.0.0/16").then_some(()));
    eventually("packets take it", SOON, || {
        router.ask(&["route", "lookup", "10.9.0.1"]).contains("via 10.2.0.2").then_some(())
    });
    // The kernel removes the route when the link goes down.
    line.r.ip("link set r2 down");
    eventually("it is missing", SOON, || (missing(&router) == Some(1)).then_some(()));
    assert!(!kernel_has(&line, "10.9.0.0/16"));
    let told = "the route to 10.9.0.0/16 is missing: ";
    assert!(router.ask(&["show", "status"]).contains(told));
    let diff = router.try_ask(&["diff", &with]);
    assert!(diff.code == Some(0) && diff.stdout.contains(&format!("# {told}")), "{}", diff.stdout);
    let applied = router.try_ask(&["apply", &with]);
    assert!(
        applied.code == Some(0) && applied.stderr.contains(&format!("warning: {told}")),
        "{}",
        applied.stderr
    );
    let listed = router.row("routes", "to", "10.9.0.0/16");
    assert!(listed["missing"].is_string() && listed["next_hops"][0]["via"] == "10.2.0.2", "{listed:#}");
    router.try_ask(&["route", "add", "10.9.0.0/16", "via", "10.2.0.2"]).assert_refused(
        1,
        &["a configured route to 10.9.0.0/16 exists already", "keeps trying to install it"],
    );
    assert!(router.ask(&["metrics"]).contains("millrace_missing_routes 1"));
    line.r.ip("link set r2 up");
    eventually("it is there with the link", SOON, || kernel_has(&line, "10.9.0.0/16").then_some(()));
    eventually("packets take it", SOON, || {
        router.ask(&["route", "lookup", "10.9.0.1"]).contains("via 10.2.0.2").then_some(())
    });
    assert_eq!(missing(&router), None);
    let events = router.ask(&["events", "--since", "0", "--json"]);
    assert!(events.contains("route-missing") && events.contains("route-back"), "{events}");
    // A missing route can be removed.
    line.r.ip("link set r2 down");
    eventually("it is missing again", SOON, || (missing(&router) == Some(1)).then_some(()));
    router.ask(&["route", "remove", "10.9.0.0/16"]);
    line.r.ip("link set r2 up");
    std::thread::sleep(Duration::from_secs(2));
    assert!(!kernel_has(&line, "10.9.0.0/16") && missing(&router).is_none());
    router.assert_conservation();
}

#[test]
fn going_back_while_a_link_is_down_does_all_that_can_be_done() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let (router, with, without) = start(&line);
    router.ask(&["apply", &without, "--confirm", "2s"]);
    assert!(!kernel_has(&line, "10.9.0.0/16"));
    line.r.ip("link set r2 down");
    eventually("it goes back", Duration::from_secs(8), || {
        (router.try_ask(&["diff", &with]).code == Some(0)).then_some(())
    });
    assert_eq!(router.json(&["history"])[0]["state"], "withdrawn");
    let audit = router.ask(&["audit", "--json"]);
    assert_eq!(audit.matches("which was not confirmed").count(), 1, "{audit}");
    assert_eq!(missing(&router), Some(1));
    line.r.ip("link set r2 up");
    eventually("the route is there again", SOON, || kernel_has(&line, "10.9.0.0/16").then_some(()));
    assert_eq!(missing(&router), None);
}

#[test]
fn a_refused_configuration_leaves_a_route_wanted_that_the_kernel_refuses_for_now() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let (router, with, _) = start(&line);
    // The kernel has a conflicting route that another program added.
    line.r.ip("route add 10.8.0.0/16 via 10.1.0.2");
    let other = format!("{BASE}[[route]]\nto = \"10.8.0.0/16\"\nvia = \"10.1.0.2\"\n");
    let other = line.write("other.toml", &other).display().to_string();
    line.r.ip("link set r2 down");
    std::thread::sleep(Duration::from_millis(500));
    router.try_ask(&["apply", &other]).assert_refused(1, &["10.8.0.0/16"]);
    assert_eq!(router.try_ask(&["diff", &with]).code, Some(0));
    line.r.ip("link set r2 up");
    eventually("the route is there again", SOON, || kernel_has(&line, "10.9.0.0/16").then_some(()));
}
