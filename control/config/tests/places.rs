//! Tests of the positions of errors: line and column must be those of the faulty value.

use millrace_config::Config;

/// Faulty file, position of the error, and a part of its message.
const WRONG: &[(&str, &str, &str)] = &[
    ("[router]\nworkers = 17", "2:11", "router.workers must be 1 to 16, not 17"),
    ("[router]\nicmp-dscp = 64", "2:13", "0 to 63"),
    ("[router]\nflows-max = 5", "2:13", "1024 to 16777216"),
    ("[router]\nframes = 5", "2:10", "1024 to 4194304"),
    ("[router]\nworkers = 2\nworker-processors = [1]", "3:21", "has 1 processor for 2 workers"),
    ("[router]\nworkers = 2\nworker-processors = [1, 1]", "3:21", "has processor 1 twice"),
    ("[router]\nworker-policy = \"fifo\"", "2:17", "write, for example, \"fifo 50\""),
    ("[router]\nnew-flows = 0", "2:13", "1 to 256"),
    ("[control-plane]\nicmp = 0", "2:8", "1 to 10000000 packets per second"),
    ("[admission]\ncpu = \"0.5 %\"", "2:7", "the part must be 1 % to 100 %, not"),
    ("[admission]\nlink = \"101 %\"", "2:8", "the part must be 1 % to 100 %, not"),
    ("[admission]\nmemory = 5", "2:10", "write"),
    ("[router]\nplugin-weight = 257", "2:17", "1 to 256 packets"),
    ("[router]\nforwarding-weight = 4097", "2:21", "1 to 4096"),
    ("[router]\noffloaded-flows = 4194305", "2:19", "0 to 4194304"),
    ("[router]\nflow-idle = \"0s\"", "2:13", "1s to 24h"),
    ("[router]\nicmp-rate = 0", "2:13", "1 or more"),
    ("[router]\nicmp-rate = 5\nicmp-burst = 0", "3:14", "1 or more"),
    ("router.workers = 0", "1:18", "1 to 16"),
    ("[plugins]\nslice = 9", "2:9", "write \"9ms\""),
    ("[plugins]\nmemory = \"0B\"", "2:10", "1MiB to 1GiB"),
    ("[plugins]\nfaults = 0", "2:10", "1 to 1000"),
    ("[plugins]\nfault-window = \"0s\"", "2:16", "1s to 24h"),
    ("[api]\naudit-size = \"1B\"", "2:14", "64KiB to 1TiB"),
    ("[api]\naudit-files = 0", "2:15", "1 to 100"),
    ("[api]\ncertificate = \"/c\"", "2:15", "api.key is not"),
    ("[api]\nlisten = [\"0.0.0.0:0\"]", "2:10", "give a port"),
    ("[api]\nlisten = [\"0.0.0.0:1\", \"0.0.0.0:1\"]", "2:10", "0.0.0.0:1 twice"),
    ("[[plugin]]\nfile = \"p.wasm\"", "2:8", "absolute path"),
    ("[[port]]\nname = \"a\"\ndevice = \"e\"\nvlan = 5000", "4:8", "1 to 4094"),
    ("[[port]]\nname = \"a\"\nkind = \"memory\"\nmtu = 10", "4:7", "at least 68"),
    ("[[port]]\nname = \"a\"\ndevice = \"e\"\nmtu = 1000", "4:7", "ip link"),
    ("[[port]]\nname = \"a\"\ndevice = \"e\"\naddress = [\"10.0.0.1/8\"]", "4:11", "ip address"),
    ("[[port]]\nname = \"a\"\nkind = \"tap\"\nmac = \"02:00:00:00:00:01\"", "4:7", "remove `mac`"),
    (
        "[[port]]\nname = \"a\"\nkind = \"memory\"\nimpair.loss = 5",
        "4:15",
        "impair.loss must be 0 to 1, not 5",
    ),
    (
        "[[port]]\nname = \"a\"\nkind = \"memory\"\nimpair = { delay-ms = 1, jitter-ms = 2 }",
        "4:38",
        "jitter-ms",
    ),
    ("port = [\n{ name = \"a\", device = \"e\" },\n{ name = \"b\", device = \"e\" }]", "3:24", "same device"),
];

#[test]
fn a_wrong_value_is_located_at_the_value() {
    for (text, place, word) in WRONG {
        let wrong = Config::parse(text, "f").unwrap_err();
        let [error] = wrong.errors() else { panic!("{text}\n{wrong}") };
        let (place_of_error, problem) = (error.place.to_string(), error.problem.to_string());
        assert!(
            place_of_error == format!("f:{place}") && problem.contains(word),
            "{text}\n{place_of_error}: {problem}"
        );
    }
}

#[test]
fn placements_take_expressions_with_a_bounded_number_of_comparisons() {
    let place = |flow: String| format!("[[place]]\nflow = \"{flow}\"\nlevel = \"worker\"\n");
    let port = "[[port]]\nname = \"lan\"\ndevice = \"e\"\n";
    let parse = |flow: &str| Config::parse(&format!("{port}{}", place(flow.to_owned())), "f");
    let config = parse("port 80 or (icmp and in lan)").unwrap();
    assert_eq!(config.place[0].flow.value().to_string(), "port 80 or (icmp and in lan)");
    let wrong = parse("port 80 or (icmp and in lam)").unwrap_err().to_string();
    assert!(wrong.contains("did you mean \"lan\"?"), "{wrong}");
    let places = |count: u16| (1..=count).map(|port| place(format!("not dport {port}"))).collect::<String>();
    assert!(Config::parse(&places(16), "f").is_ok());
    let wrong = Config::parse(&places(18), "f").unwrap_err();
    let [error] = wrong.errors() else { panic!("{wrong}") };
    assert_eq!(error.place.to_string(), "f:50:8");
    assert!(error.problem.to_string().contains("4352 comparisons"), "{wrong}");
}
