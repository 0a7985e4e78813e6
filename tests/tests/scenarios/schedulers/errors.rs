//! Scheduler changes that the router refuses, each with its reason.

use millrace_testkit::{Ground, Line};

use super::live_traffic::{node, refuses, shaped};

#[test]
fn impossible_promise_is_refused_with_its_reason() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    let router = shaped(&line);
    let refused = |arguments: &[&str], texts: &[&str]| refuses(&router, "scheduler", arguments, texts);
    refused(&["add", "r9", "x", "--kind", "fifo"], &["r9", "did you mean"]);
    refused(&["add", "r2", "x", "--kind", "fifoo", "--under", "top", "level=2"], &["fifoo"]);
    refused(&["add", "r2", "x", "--kind", "fifo", "--under", "tpo", "level=2"], &["did you mean \"top\""]);
    refused(&["add", "r2", "x", "--kind", "fifo", "--under", "top"], &["\"x\"", "needs a level"]);
    refused(&["add", "r2", "x", "--kind", "fifo"], &["\"x\"", "\"top\" is the root already"]);
    refused(
        &["add", "r2", "x", "--kind", "fifo", "--under", "top", "level=0"],
        &["level 0 of node \"top\" is taken by node \"voice\""],
    );
    refused(&["add", "r2", "x", "--kind", "fifo", "--under", "voice"], &["\"voice\"", "no children"]);
    refused(&["add", "r2", "voice", "--kind", "fifo", "--under", "top", "level=3"], &["voice", "already"]);
    refused(&["add", "r2", "x", "--kind", "fifo", "--under", "top", "level=3", "burst=9B"], &["burst"]);
    refused(&["set", "r2", "rate=fast"], &["fast", "is no rate"]);
    refused(&["set", "r2", "--node", "voice", "manage=red", "minimum=9B", "maximum=9B"], &["minimum"]);
    let red = ["set", "r2", "--node", "voice", "manage=red", "probability=2"];
    refused(&red, &["probability 2 must be above 0 and at most 1"]);
    refused(&["set", "r2", "--node", "voice", "gentle=false"], &["gentle does not apply to a fifo"]);
    router.ask(&[
        "queue",
        "set",
        "r2",
        "voice",
        "manage=red",
        "probability=0.5",
        "gentle=false",
        "weight=0.01",
    ]);
    let settings = node(&router, "voice")["settings"].clone();
    assert_eq!((&settings["gentle"], &settings["probability"]), (&false.into(), &0.5.into()), "{settings}");
    refused(&["set", "r2", "--node", "voice", "unit=cells"], &["cells", "bytes", "packets"]);
    refused(&["set", "r2", "--node", "rest", "unit=packets"], &["unit does not apply to a fq-codel"]);
    let in_packets = ["unit=packets", "minimum=10", "maximum=40"];
    router.ask(&[&["queue", "set", "r2", "voice"], &in_packets[..]].concat());
    let settings = node(&router, "voice")["settings"].clone();
    assert_eq!((&settings["unit"], &settings["maximum"]), (&"packets".into(), &40.into()), "{settings}");
    refused(&["remove", "r2", "voice", "--to", "top"], &["top", "leaf"]);
    router
        .try_ask(&["filter", "add", "dport 9", "--action", "queue voic"])
        .assert_refused(1, &["did you mean \"voice\""]);
}

#[test]
fn promises_above_the_link_are_refused_with_the_sum() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    let router = shaped(&line);
    let refused = |arguments: &[&str], texts: &[&str]| refuses(&router, "scheduler", arguments, texts);
    // Weights of ports can change while the ports forward.
    let set = |setting| router.try_ask(&["port", "set", "r1", setting]);
    set("input-weight=257").assert_refused(1, &["weight must be 1 to 256", "not 257"]);
    set("mtu=9").assert_refused(1, &["mtu", "input-weight, output-weight and reverse-path"]);
    router.try_ask(&["port", "set", "r9", "input-weight=1"]).assert_refused(1, &["\"r9\""]);
    router.ask(&["port", "set", "r1", "input-weight=64", "reverse-path=loose"]);
    let port = |key: &str| router.json(&["show", "ports"])[0][key].clone();
    assert_eq!((port("input_weight"), port("reverse_path")), (64.into(), "loose".into()));
    router.ask(&["port", "set", "r1", "input-weight=", "reverse-path="]);
    assert_eq!((port("input_weight"), port("reverse_path")), (256.into(), "off".into()));
    // Then real-time guarantees above the rate of the link.
    refused(&["set", "r1", "rate=1mbit"], &["r1", "has no scheduler"]);
    refused(&["show", "r1"], &["port \"r1\" has no scheduler", "scheduler add r1"]);
    refused(&["show", "r9"], &["no port is named \"r9\""]);
    refused(&["set", "r2", "host-weight=0"], &["weight must be 1 to 256", "not 0"]);
    router
        .try_ask(&["filter", "add", "dport 9", "--action", "queue voice", "--gate", "route"])
        .assert_refused(1, &["does not support action queue voice", "positions early, late, queue"]);
    router.ask(&["scheduler", "add", "r1", "all", "--kind", "hfsc"]);
    router.ask(&["scheduler", "set", "r1", "rate=1mbit"]);
    let curve = "real-time=2mbit";
    refused(&["add", "r1", "x", "--kind", "fifo", "--under", "all", curve], &["2.00 Mb/s", "1.00 Mb/s"]);
    router.ask(&["scheduler", "add", "r1", "x", "--kind", "fifo", "--under", "all", "real-time=600kbit"]);
    let sum = ["1.10 Mb/s in the long run", "the link allows", "1.00 Mb/s"];
    refused(&["add", "r1", "y", "--kind", "fifo", "--under", "all", "real-time=500kbit"], &sum);
    refused(&["set", "r1", "rate=500kbit"], &["600.00 kb/s", "500.00 kb/s"]);
    router.ask(&["scheduler", "remove", "r1", "x"]);
    refused(
        &["add", "r1", "x", "--kind", "fifo", "--under", "x", "link-sharing=1mbit"],
        &["\"x\" under \"x\""],
    );
    router.ask(&[
        "scheduler",
        "add",
        "r2",
        "fair",
        "--kind",
        "deficit-round-robin",
        "--under",
        "top",
        "level=5",
    ]);
    refused(
        &["add", "r2", "x", "--kind", "fifo", "--under", "fair", "quantum=0B"],
        &["quantum must be 1 to"],
    );
    router.ask(&["scheduler", "remove", "r2", "fair"]);
    // The same error in a configuration file; the message names its place.
    let file = "[[port]]\nname = \"r1\"\ndevice = \"r1\"\n[[port]]\nname = \"r2\"\ndevice = \"r2\"\n[port.scheduler]\nnode = [\n\
                { name = \"a\", kind = \"hfsc\", under = \"a\" }]\n";
    let file = line.write("circle.toml", file).display().to_string();
    router.try_ask(&["apply", &file]).assert_refused(1, &["circle.toml:9:38", "\"a\" under \"a\""]);
    assert_eq!(router.json(&["scheduler", "show", "r1"])["nodes"].as_array().map(Vec::len), Some(1));
}
