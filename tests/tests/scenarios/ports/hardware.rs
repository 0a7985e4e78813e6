//! Hardware as the router shows it: processors, ports, the switches between them, and what each supports on
//! this machine.

use std::time::Duration;

use millrace_testkit::{Ground, Line, Millrace, wait_until};
use serde_json::Value;

use crate::support::router;

/// Returns the row of a table by its name.
fn row(router: &Millrace, table: &str, name: &str) -> Value {
    let hardware = router.json(&["show", "hardware"]);
    let found =
        hardware[table].as_array().and_then(|rows| rows.iter().find(|row| row["name"] == name)).cloned();
    found.unwrap_or_else(|| panic!("{table} has no {name:?}: {hardware:#}"))
}

#[test]
fn processors_ports_and_switches_are_shown_with_their_capabilities() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    line.h2.run("ethtool -K eth0 gro on");
    line.h1.run("ethtool -K eth0 gro off");
    let router = router(&line);
    let takes = |port: &str| row(&router, "ports", port)["why_no_redirects"].is_null();
    let r2 = wait_until(Duration::from_secs(3), || takes("r2"));
    assert!(r2.is_some(), "{:#}", router.json(&["show", "hardware"]));
    let r1 = row(&router, "ports", "r1");
    assert!(r1["why_no_redirects"].as_str().is_some_and(|why| why.contains("gro on")), "{r1:#}");
    assert_eq!(
        (&r1["driver"], &r1["xdp"], &r1["sockets"]),
        (&"veth".into(), &"native".into(), &"copy".into())
    );
    assert_eq!((&r1["rx_queues"], &r1["mtu"], &r1["processor"]), (&1.into(), &1500.into(), &"xdp r1".into()));
    let program = row(&router, "processors", "xdp r1");
    assert_eq!((&program["level"], &program["above"]), (&0.into(), &"worker 0".into()));
    assert!(program["why_not"].is_null(), "{program:#}");
    let hardware = router.json(&["show", "hardware"]);
    let redirects: Vec<(&Value, &Value)> = hardware["switches"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|switch| switch["name"] == "XDP redirect")
        .map(|switch| (&switch["to"], &switch["works"]))
        .collect();
    assert_eq!(redirects, [(&"r1".into(), &false.into()), (&"r2".into(), &true.into())]);
    assert!(!hardware["cpus"].as_array().expect("a list").is_empty(), "{hardware:#}");
    let drawing = router.ask(&["show", "hardware"]);
    assert!(
        drawing.starts_with("host\n└─ worker 0\n   ├─ xdp r1\n   │  └─ port r1 (r1, veth, copy)\n"),
        "{drawing}"
    );
    // The router notices a change of the other end at run time.
    line.h1.run("ethtool -K eth0 gro on");
    let noticed = wait_until(Duration::from_secs(3), || takes("r1"));
    assert!(noticed.is_some(), "{:#}", router.json(&["show", "hardware"]));
    // `doctor` reports the same for a device that is no port yet.
    let third = millrace_testkit::Namespace::new("h3");
    line.connect(&third, "eth0", 3, 1500);
    third.run("ethtool -K eth0 gro off");
    let doctor = millrace_testkit::run_to_end(&line.r, &["doctor", "r3", "--json"]);
    let doctor: Value = serde_json::from_str(&doctor.stdout).expect("JSON");
    assert_eq!(
        (&doctor["devices"][0]["flows_in"]["works"], &doctor["devices"][0]["flows_out"]["works"]),
        (&true.into(), &false.into()),
        "{doctor:#}"
    );
}

#[test]
fn reason_against_offload_is_shown_in_each_case() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let ports = |driver: &str| {
        format!(
            "[[port]]\nname = \"r1\"\ndevice = \"r1\"\ndriver = \"{driver}\"\n[[port]]\nname = \"r2\"\ndevice = \"r2\"\n[[port]]\nname = \"t\"\nkind = \"tap\"\naddress = [\"10.7.0.1/24\"]\n"
        )
    };
    let cases = [
        ("generic.toml", ports("af_xdp-generic"), "xdp r1", "generic", "copy"),
        ("packet.toml", ports("af_packet"), "tcx r1", "AF_PACKET", "ring"),
        (
            "none.toml",
            format!("[router]\noffloaded-flows = 0\n{}", ports("auto")),
            "xdp r1",
            "offloaded-flows = 0",
            "copy",
        ),
    ];
    for (name, text, processor, why, sockets) in cases {
        let file = line.write(name, &text);
        let router = Millrace::start(&line.r, &format!("--config {}", file.display()));
        let program = row(&router, "processors", processor);
        assert!(program["why_not"].as_str().is_some_and(|said| said.contains(why)), "{name}: {program:#}");
        assert_eq!(row(&router, "ports", "r1")["sockets"], sockets, "{name}");
        // If a device doesn't support the offload, the router refuses the placement.
        if name == "none.toml" {
            let placed = router.try_ask(&["place", "proto udp", "offload"]);
            assert!(placed.code != Some(0) && placed.stderr.contains(why), "{name}: {placed:?}");
        }
        let tap = row(&router, "ports", "t");
        assert!(tap["processor"].as_str().is_some_and(|one| one.starts_with("worker ")), "{name}: {tap:#}");
    }
}
