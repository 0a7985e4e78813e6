//! Routing daemons run unchanged beside the router: it forwards by what they learn.

use std::time::Duration;

use millrace_testkit::{Background, Ground, Line, Namespace, eventually};

/// How long two daemons may take to find each other.
const PATIENCE: Duration = Duration::from_secs(40);

/// BIRD in the foreground, with a configuration and a control socket of its own.
fn bird(line: &Line, host: &Namespace, name: &str, config: &str) -> Background {
    let file = line.write(&format!("{name}.conf"), config).display().to_string();
    let [control, log] = ["ctl", "log"].map(|extension| line.file(&format!("{name}.{extension}")));
    let control = control.display().to_string();
    Background::start(
        host,
        "bird",
        &["-f", "-c", &file, "-s", &control, "-P", &format!("{control}.pid")],
        log,
    )
}

const KERNEL: &str = "protocol device { scan time 2; }\n\
                      protocol kernel { ipv4 { import none; export all; }; }\n\
                      protocol kernel { ipv6 { import none; export all; }; }\n";

/// OSPF on a device, with the shortest intervals there are.
fn ospf(id: &str, device: &str, stub4: &str, stub6: &str) -> String {
    let interface =
        format!("interface \"{device}\" {{ type broadcast; hello 1; dead 4; wait 2; retransmit 2; }};");
    format!(
        "router id {id};\n{KERNEL}\
         protocol ospf v2 o4 {{ ipv4 {{ import all; export none; }}; area 0 {{ {interface}\n{stub4} }}; }}\n\
         protocol ospf v3 o6 {{ ipv6 {{ import all; export none; }}; area 0 {{ {interface}\n{stub6} }}; }}\n"
    )
}

#[test]
fn routes_that_bird_learns_by_ospf_are_forwarded_by_and_withdrawn() {
    let Some(_ground) = Ground::enter(&["ping", "bird"]) else { return };
    let line = Line::new();
    line.h2.ip("address add 10.9.0.1/32 dev lo\naddress add fd00:9::1/128 dev lo nodad");
    let router = crate::support::router(&line);
    let _here = bird(&line, &line.r, "here", &ospf("10.2.0.1", "r2", "", ""));
    let mut there = bird(
        &line,
        &line.h2,
        "there",
        &ospf("10.2.0.2", "eth0", "stubnet 10.9.0.0/16;", "stubnet fd00:9::/48;"),
    );
    let learned = |prefix: &str| {
        let routes = router.json(&["show", "routes"]);
        routes.as_array().unwrap().iter().any(|route| route["to"] == prefix && route["kind"] == "forward")
    };
    eventually("the router has what OSPF learned", PATIENCE, || learned("10.9.0.0/16").then_some(()));
    line.h1.run("ping -c 2 -i 0.2 -W 2 10.9.0.1");
    eventually("the same by IPv6", PATIENCE, || learned("fd00:9::/48").then_some(()));
    line.h1.run("ping -c 2 -i 0.2 -W 2 fd00:9::1");
    crate::support::assert_router_forwards(&line, &router);
    there.end_by(nix::sys::signal::Signal::SIGTERM);
    eventually("the route is withdrawn", PATIENCE, || (!learned("10.9.0.0/16")).then_some(()));
    assert!(!line.h1.succeeds("ping -c 1 -W 1 10.9.0.1"));
    router.assert_conservation();
}

#[test]
fn routes_that_frr_learns_by_bgp_are_forwarded_by() {
    let Some(_ground) = Ground::enter(&["ping", "bird", "zebra"]) else { return };
    let line = Line::new();
    line.h2.ip("address add 10.9.0.1/32 dev lo");
    let router = crate::support::router(&line);
    let neighbour = format!(
        "router id 10.2.0.2;\n{KERNEL}protocol static own {{ ipv4; route 10.9.0.0/16 blackhole; }}\n\
         protocol bgp up {{ local 10.2.0.2 as 65002; neighbor 10.2.0.1 as 65001; connect retry time 1;\n\
         ipv4 {{ import none; export all; }}; }}\n"
    )
    // Its own blackhole is only for announcing.
    .replace("export all; }; }\nprotocol kernel { ipv6", "export none; }; }\nprotocol kernel { ipv6");
    let _there = bird(&line, &line.h2, "there", &neighbour);
    let directory = line.directory.path().join("frr");
    std::fs::create_dir(&directory).unwrap();
    // FRR gives up its rights: its user must be able to write here.
    line.r.run(&format!("chmod 755 {0}; chown frr:frr {0}", directory.display()));
    line.r.run(&format!("chmod 755 {}", line.directory.path().display()));
    let file = |name: &str| directory.join(name).display().to_string();
    std::fs::write(file("zebra.conf"), "hostname r\n").unwrap();
    std::fs::write(
        file("bgpd.conf"),
        "router bgp 65001\n no bgp ebgp-requires-policy\n bgp router-id 10.2.0.1\n \
         neighbor 10.2.0.2 remote-as 65002\n neighbor 10.2.0.2 timers connect 1\n",
    )
    .unwrap();
    let api = file("zserv.api");
    let start = |daemon: &str| {
        let program = format!("/usr/lib/frr/{daemon}");
        let [config, pid] = ["conf", "pid"].map(|extension| file(&format!("{daemon}.{extension}")));
        let vty = directory.display().to_string();
        let arguments = ["-f", &config, "-i", &pid, "-z", &api, "--vty_socket", &vty, "-P", "0"];
        Background::start(&line.r, &program, &arguments, line.file(&format!("{daemon}.log")))
    };
    let zebra = start("zebra");
    eventually("zebra listens", PATIENCE, || std::path::Path::new(&api).exists().then_some(()));
    let bgpd = start("bgpd");
    let learned = || {
        let routes = router.json(&["show", "routes"]);
        routes.as_array().unwrap().iter().any(|route| route["to"] == "10.9.0.0/16")
    };
    if millrace_testkit::wait_until(PATIENCE, learned).is_none() {
        panic!("not learned: {}\n{}\n{:#}", zebra.log(), bgpd.log(), router.json(&["show", "routes"]));
    }
    line.h1.run("ping -c 2 -i 0.2 -W 2 10.9.0.1");
    crate::support::assert_router_forwards(&line, &router);
    router.assert_conservation();
}
