//! Lists of routes and filters from files, one a line: all lines apply or none, and errors name each wrong
//! line.

use std::fmt::Write as _;
use std::time::Duration;

use millrace_testkit::{Flow, Ground, Line, Millrace};
use serde_json::json;

use crate::support::{flow_for, to};

/// Number of routes that only the router has.
const OWN: u32 = 20_000;
const KERNEL: u32 = 2_000;

fn start(line: &Line) -> Millrace {
    let config = "[router]\non-death = \"kernel\"\n\
         [[port]]\nname = \"lan\"\ndevice = \"r1\"\n[[port]]\nname = \"wan\"\ndevice = \"r2\"\n\
         [[port]]\nname = \"own\"\nkind = \"memory\"\naddress = [\"10.77.0.1/24\"]\n";
    let config = line.write("lists.toml", config).display().to_string();
    Millrace::start(&line.r, &format!("--config {config}"))
}

/// Returns routes in the syntax of ip-route(8).
fn routes() -> String {
    let mut text = "# behind a port without a kernel\n\n".to_owned();
    for route in 0..OWN {
        let _ = writeln!(
            text,
            "{}.{}.{}.0/24 via 10.77.0.9",
            20 + route / 65_536,
            route / 256 % 256,
            route % 256
        );
    }
    for route in 0..KERNEL {
        let _ = writeln!(text, "30.0.{}.{} via 10.2.0.2 dev wan proto static", route / 256, route % 256);
    }
    text
}

fn kernel_routes(line: &Line) -> usize {
    line.r.run("ip route show proto 213").lines().count()
}

#[test]
fn routes_of_a_file_come_and_go_whole_while_packets_flow() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let router = start(&line);
    let before = router.ask(&["route", "list", "--lines"]);
    let file = line.write("routes.txt", &routes()).display().to_string();

    // The ping resolves the neighbour. Otherwise the first packets would be held, and some dropped.
    line.h1.run("ping -c 1 10.2.0.2");
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    flow.wait_for_arrival();
    assert_eq!(router.ask(&["route", "add", "--from", &file]), format!("{} routes added\n", OWN + KERNEL));
    assert_eq!(kernel_routes(&line), KERNEL as usize);
    let lookup = router.json(&["route", "lookup", "20.78.31.7"]);
    assert_eq!((&lookup["to"], &lookup["next_hops"][0]["port"]), (&json!("20.78.31.0/24"), &json!("own")));
    // The router accepts the list that it printed.
    let lines = router.ask(&["route", "list", "--lines"]);
    let ours: Vec<&str> = lines.lines().filter(|line| line.contains(" via ")).collect();
    let again = line.write("again.txt", &ours.join("\n")).display().to_string();
    let removed = router.ask(&["route", "remove", "--from", &again]);
    assert_eq!(removed, format!("{} routes removed\n", OWN + KERNEL));
    let report = flow.finish();
    assert_eq!(kernel_routes(&line), 0);
    assert_eq!(router.ask(&["route", "list", "--lines"]), before);
    assert!(report.lost() == 0, "{report:?}");
    router.assert_conservation();
}

#[test]
fn file_with_wrong_lines_changes_nothing_and_names_each_wrong_line() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let router = start(&line);
    let routes =
        "10.50.0.0/16 via 10.77.0.9\n# a comment\n10.51.0.1/16 via 10.77.0.9\n10.50.0.0/16 via 10.2.0.2\n";
    let file = line.write("wrong.txt", routes).display().to_string();
    let ended = router.try_ask(&["route", "add", "--from", &file]);
    ended.assert_refused(1, &["wrong.txt: 2 lines are wrong; nothing was changed"]);
    for words in [
        "wrong.txt:3: ",
        "the prefix is 10.51.0.0/16",
        "wrong.txt:4: ",
        "10.50.0.0/16 occurs more than once in the list",
    ] {
        assert!(ended.stderr.contains(words), "{words}: {ended:?}");
    }
    let ended = router.try_ask(&["--json", "route", "add", "--from", &file]);
    let told: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((&told["wrong"], &told["errors"][0]["line"]), (&json!(2), &json!(3)));

    // Only the kernel finds this error: the router removes the routes that it had added before.
    line.r.ip("route add 10.53.0.0/16 via 10.2.0.2 proto static");
    let routes = "10.52.0.0/16 via 10.77.0.9\n10.54.0.0/16 via 10.2.0.2\n10.53.0.0/16 via 10.2.0.2\n";
    let file = line.write("kernel.txt", routes).display().to_string();
    let ended = router.try_ask(&["route", "add", "--from", &file]);
    ended.assert_refused(1, &["1 line is wrong"]);
    assert!(ended.stderr.contains("kernel.txt:3: the kernel refused"), "{ended:?}");
    assert_eq!(kernel_routes(&line), 0);
    router.try_ask(&["route", "lookup", "10.52.0.1"]).assert_refused(1, &["no route"]);

    let filters = "proto udp dport 7 action drop\nproto xdp action drop\nproto udp action sing\n";
    let file = line.write("filters.txt", filters).display().to_string();
    let ended = router.try_ask(&["filter", "add", "--from", &file]);
    ended.assert_refused(1, &["filters.txt: 2 lines are wrong"]);
    assert!(
        ended.stderr.contains("filters.txt:2: ") && ended.stderr.contains("filters.txt:3: "),
        "{ended:?}"
    );
    assert_eq!(router.json(&["filter", "list"]), json!([]));
}

#[test]
fn filters_of_a_file_hold_when_the_command_has_ended() {
    let Some(_ground) = Ground::enter_alone(&[]) else { return };
    let line = Line::new();
    let router = start(&line);
    let mut filters = String::new();
    for port in 1..=1000 {
        let _ = writeln!(filters, "proto tcp dport {port} action reject gate firewall priority {port}");
    }
    filters += "proto udp dst 10.2.0.2 action drop\n";
    let file = line.write("filters.txt", &filters).display().to_string();
    assert_eq!(router.ask(&["filter", "add", "--from", &file]), "1001 filters added\n");
    let report = flow_for(&line, 500, Duration::from_millis(200));
    assert!(report.sent > 0 && report.received == 0, "{report:?}");
    // The printed list equals the file.
    let lines = router.ask(&["filter", "list", "--lines"]);
    assert_eq!(lines.lines().count(), 1001);
    assert!(lines.contains("proto tcp dport 7 action reject gate firewall priority 7\n"), "{lines}");
    let ids: Vec<String> = router
        .json(&["filter", "list"])
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["id"].to_string())
        .collect();
    let remove: Vec<&str> = ["filter", "remove"].into_iter().chain(ids.iter().map(String::as_str)).collect();
    router.ask(&remove);
    let file = line.write("again.txt", &lines).display().to_string();
    assert_eq!(router.ask(&["filter", "add", "--from", &file]), "1001 filters added\n");
    assert_eq!(router.ask(&["filter", "list", "--lines"]), lines);
}
