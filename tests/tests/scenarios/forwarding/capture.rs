//! Captures that Wireshark's programs read, and replay of frames from a file.

use std::process::Stdio;

use millrace_testkit::{Ground, Line, run_to_end};

/// Returns the fields that tshark prints for each packet of a file.
fn tshark(line: &Line, file: &str, fields: &str) -> Vec<String> {
    let text = line.h1.run(&format!("tshark -n -r {file} -T fields {fields} 2>/dev/null"));
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_capture_of_five_packets_is_read_by_tshark() {
    let Some(_ground) = Ground::enter(&["ping", "tshark"]) else { return };
    let line = Line::new();
    let router = crate::support::router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    let file = line.file("five.pcapng");
    // Capture to standard output, as into a pipe to Wireshark.
    let mut command = router.client();
    command.args(["capture", "r1", "-w", "-", "--count", "5", "--filter", "proto icmp src 10.1.0.2"]);
    command.stdout(std::fs::File::create(&file).unwrap()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    line.h1.run("ping -c 2 -i 0.1 fd00:2::2");
    line.h1.run("ping -c 8 -i 0.1 -s 200 10.2.0.2");
    assert!(child.wait().unwrap().success());
    let file = file.display().to_string();
    let rows = tshark(&line, &file, "-e frame.interface_name -e ip.src -e ip.dst -e icmp.type -e frame.len");
    assert_eq!(rows, ["r1\t10.1.0.2\t10.2.0.2\t8\t242"; 5]);
    let sequence = tshark(&line, &file, "-e icmp.seq");
    assert_eq!(sequence, ["1", "2", "3", "4", "5"]);
    router.assert_conservation();
}

#[test]
fn both_directions_of_all_ports_are_captured_and_cut_as_asked() {
    let Some(_ground) = Ground::enter(&["ping", "tshark"]) else { return };
    let line = Line::new();
    let router = crate::support::router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    let file = line.file("any.pcapng").display().to_string();
    let mut command = router.client();
    command.args(["capture", "any", "-w", &file, "--count", "8", "--filter", "proto icmp", "--snap", "60B"]);
    let mut child = command.spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    line.h1.run("ping -c 4 -i 0.1 -s 500 10.2.0.2");
    assert!(child.wait().unwrap().success());
    let rows =
        tshark(&line, &file, "-e frame.interface_name -e ip.ttl -e icmp.type -e frame.cap_len -e frame.len");
    // The rows of each ping: the request in by r1 and out by r2, the reply in by r2 and out by r1.
    let first: Vec<&str> = rows[..4].iter().map(String::as_str).collect();
    let expected = ["r1\t64\t8\t60\t542", "r2\t63\t8\t60\t542", "r2\t64\t0\t60\t542", "r1\t63\t0\t60\t542"];
    assert_eq!(first, expected);
    router.assert_conservation();
}

#[test]
fn refused_capture_leaves_the_file_unchanged() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let router = crate::support::router(&line);
    let kept = line.write("kept", "precious").display().to_string();
    let new = line.file("new").display().to_string();
    for file in [&kept, &new] {
        router.try_ask(&["capture", "r1", "--filter", "prt 80", "-w", file]).assert_refused(1, &["prt"]);
        router.try_ask(&["trace", "--filter", "prt 80", "-w", file]).assert_refused(1, &["prt"]);
        router.try_ask(&["drops", "--reason", "prt", "-w", file]).assert_refused(1, &["prt"]);
    }
    assert_eq!(std::fs::read_to_string(kept).unwrap(), "precious");
    assert!(!std::path::Path::new(&new).exists());
}

#[test]
fn a_capture_takes_an_expression_in_the_words_of_tcpdump() {
    let Some(_ground) = Ground::enter(&["ping", "tshark", "bash"]) else { return };
    let line = Line::new();
    let router = crate::support::router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    let file = line.file("expression.pcapng").display().to_string();
    let mut command = router.client();
    command.args(["capture", "r1", "-w", &file, "--count", "4", "--filter", "port 80 or icmp"]);
    let mut child = command.spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    // No program listens at these ports, so h2 answers each datagram with an ICMP error.
    let send = |port: u16| line.h1.run(&format!("bash -c 'echo x > /dev/udp/10.2.0.2/{port}'"));
    [443, 80].into_iter().for_each(|port| drop(send(port)));
    line.h1.run("ping -c 1 10.2.0.2");
    [80, 80].into_iter().for_each(|port| drop(send(port)));
    assert!(child.wait().unwrap().success());
    let rows = tshark(&line, &file, "-E occurrence=f -e ip.proto -e udp.dstport");
    let (icmp, others): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.starts_with("1\t"));
    assert!(rows.len() == 4 && !icmp.is_empty() && !others.is_empty(), "{rows:?}");
    assert!(others.iter().all(|row| *row == "17\t80"), "{rows:?}");
    let flows = |filter: &str| router.json(&["flow", "list", filter])["found"].as_u64();
    let found = ["udp and (port 80 or port 443)", "udp and not port 80", "udp port 80"].map(flows);
    assert_eq!(found, [Some(4), Some(1), Some(3)], "{:#}", router.json(&["flow", "list"]));
    router.ask(&["place", "port 80 or icmp", "worker"]);
    let placed = router.json(&["place", "list"]);
    assert_eq!(placed["placements"][0]["flow"], "port 80 or icmp", "{placed:#}");
    assert_eq!(placed["placements"].as_array().map(Vec::len), Some(1), "{placed:#}");
    router.assert_conservation();
}

#[test]
fn a_captured_file_is_replayed_by_the_same_pipeline() {
    let Some(_ground) = Ground::enter(&["ping", "tshark"]) else { return };
    let line = Line::new();
    let router = crate::support::router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    let input = line.file("in.pcapng").display().to_string();
    let filter = ["--filter", "src 10.1.0.2 dst 10.2.0.2"];
    let mut command = router.client();
    command.args(["capture", "r1", "-w", &input, "--count", "5"]).args(filter);
    let mut child = command.spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    line.h1.run("ping -c 6 -i 0.1 10.2.0.2");
    assert!(child.wait().unwrap().success());

    let mac = line.r.mac_of("r1").map(|byte| format!("{byte:02x}")).join(":");
    let config = format!(
        "[[port]]\nname = \"a\"\nkind = \"memory\"\nmac = \"{mac}\"\naddress = [\"10.1.0.1/24\"]\n\
         [[port]]\nname = \"b\"\nkind = \"memory\"\naddress = [\"10.2.0.1/24\"]\n\
         [[neighbour]]\nport = \"b\"\naddress = \"10.2.0.2\"\nmac = \"02:00:00:00:00:b2\"\n"
    );
    let config = line.write("replay.toml", &config).display().to_string();
    let output = line.file("out.pcapng").display().to_string();
    let arguments = ["replay", "--in", &input, "--out", &output, "--config", &config, "--json"];
    let ended = run_to_end(&line.r, &arguments);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let summary: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((&summary["received"], &summary["unaccounted"]), (&5.into(), &0.into()), "{summary:#}");
    // The filter selects these packets, because the ports also announce their addresses.
    let rows = tshark(&line, &output, "-Y ip -e frame.interface_name -e eth.dst -e ip.ttl");
    assert_eq!(rows, ["b\t02:00:00:00:00:b2\t63"; 5]);
    // A second replay writes the same file, because its only clock is that of the recording.
    let again = line.file("again.pcapng").display().to_string();
    run_to_end(&line.r, &["replay", "--in", &input, "--out", &again, "--config", &config]);
    assert!(std::fs::read(&output).unwrap() == std::fs::read(&again).unwrap());
}

#[test]
fn captures_at_gates_and_instances_show_arriving_and_departing_packets() {
    let Some(_ground) = Ground::enter(&["ping", "tshark", "tcpdump"]) else { return };
    let line = Line::new();
    let router = crate::support::router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&["instance", "create", "port-filter", "door", "ports=9000"]);
    router.ask(&["bind", "door", "--gate", "firewall", "--filter", "src 10.1.0.2"]);
    let capture = |place: &str, count: &str, more: &[&str]| {
        let file = line.file(&format!("{}.pcapng", place.replace(':', "-"))).display().to_string();
        let mut command = router.client();
        command.args(["capture", place, "-w", &file, "--count", count]).args(more);
        let mut child = command.spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(300));
        line.h1.run("ping -c 4 -i 0.1 10.2.0.2");
        line.h1.run("bash -c 'echo x > /dev/udp/10.2.0.2/9000'");
        assert!(child.wait().unwrap().success());
        file
    };
    let file = capture("firewall", "4", &[]);
    let rows = tshark(&line, &file, "-e frame.interface_name -e ip.dst -e ip.ttl -e icmp.seq");
    assert_eq!(rows.len(), 4, "{rows:?}");
    // Each packet appears before and after the instance. The replies meet no binding at this gate.
    assert_eq!(rows[0], "gate firewall\t10.2.0.2\t64\t1");
    assert_eq!(rows[0], rows[1]);
    assert!(rows.iter().all(|row| row.starts_with("gate firewall\t10.2.0.2")), "{rows:?}");
    // The packet that the instance drops appears before the instance and not after it.
    let before = router.drops("plugin");
    let file = capture("firewall", "9", &["--filter", "dst 10.2.0.2"]);
    let rows = tshark(&line, &file, "-e udp.dstport");
    assert_eq!(rows.iter().filter(|row| *row == "9000").count(), 1, "{rows:?}");
    assert_eq!(router.drops("plugin"), before + 1, "{:#}", router.json(&["show", "drops"]));
    let file = capture("instance:door", "2", &["--filter", "proto icmp", "--snap", "40B"]);
    let rows = tshark(&line, &file, "-e frame.interface_name -e frame.cap_len -e frame.len");
    assert_eq!(rows, ["instance door\t40\t98"; 2]);
    let read = line.h1.run(&format!("sh -c 'tcpdump -n -r - < {file} 2>/dev/null'"));
    assert_eq!(read.lines().count(), 2, "{read}");
    router.try_ask(&["capture", "nowhere", "-w", "-"]).assert_refused(1, &["nowhere", "r1"]);
    router.try_ask(&["capture", "gate:firewal", "-w", "-"]).assert_refused(1, &["firewal", "firewall"]);
    router.assert_conservation();
}
