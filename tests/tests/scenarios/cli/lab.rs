//! Labs run from the command line.

use std::process::Command;

use millrace_testkit::{Ground, Line, binary};

fn millrace(arguments: &[&str]) -> (bool, String) {
    let output = Command::new("timeout").arg("60").arg(binary()).args(arguments).output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

/// Running lab. Dropping it takes the lab down, even if the test fails.
struct Up(String);

impl Drop for Up {
    fn drop(&mut self) {
        millrace(&["lab", "down", &self.0]);
    }
}

/// Writes a copy of the example lab under a unique name.
fn example(line: &Line, name: &str, more: &str) -> String {
    let example = "../examples/lab/two-hosts.toml";
    let text = std::fs::read_to_string(example).unwrap();
    let text = text.replace("name = \"two-hosts\"", &format!("name = \"{name}\"")) + more;
    line.write("lab.toml", &text).display().to_string()
}

#[test]
fn example_lab_carries_a_ping_and_leaves_nothing_behind() {
    let Some(_ground) = Ground::enter(&["ping", "nsenter"]) else { return };
    let line = Line::new();
    let name = format!("mrlab{}", std::process::id());
    let file = example(&line, &name, "");
    let namespaces = || {
        let list = Command::new("ip").args(["netns", "list"]).output().unwrap().stdout;
        String::from_utf8_lossy(&list).lines().filter(|line| line.starts_with(&name)).count()
    };
    let (up, said) = millrace(&["lab", "up", &file]);
    let lab = Up(name.clone());
    assert!(up, "{said}");
    assert_eq!(namespaces(), 3);
    let (listed, said) = millrace(&["lab", "list", "--json"]);
    assert!(listed && said.contains(&name), "{said}");
    let (listed, said) = millrace(&["show", "lab", &name]);
    assert!(listed && said.contains(&name), "{said}");
    let (known, said) = millrace(&["lab", "list", "nosuch"]);
    assert!(!known && said.contains("lab \"nosuch\" is not up"), "{said}");
    // The state of a lab's router is in the lab's own folder, apart from that of routers outside labs.
    let directory = std::path::Path::new("/run/millrace/lab").join(&name);
    let socket = directory.join("r.sock").display().to_string();
    let (applied, said) =
        millrace(&["--socket", &socket, "save", &line.file("r.toml").display().to_string()]);
    assert!(applied, "{said}");
    let (shown, said) = millrace(&["--socket", &socket, "show", "configuration", "--json"]);
    assert!(shown && said.contains(&format!("\"store\": \"{}/r.state/", directory.display())), "{said}");
    assert!(std::fs::read_dir(directory.join("r.state")).unwrap().count() > 0, "nothing is kept there");
    for command in
        [&["ping", "-c", "2", "-i", "0.2", "10.2.0.2"][..], &["ping", "-c", "2", "-i", "0.2", "fd00:2::2"]]
    {
        let (pinged, said) = millrace(&[&["lab", "exec", &name, "h1", "--"], command].concat());
        assert!(pinged, "{said}");
    }
    assert!(!millrace(&["lab", "exec", &name, "h1", "--", "false"]).0, "the command's exit code");
    let (again, said) = millrace(&["lab", "up", &file]);
    assert!(!again && said.contains(&name), "{said}");
    let (down, said) = millrace(&["lab", "down", &file]);
    assert!(down, "{said}");
    assert_eq!(namespaces(), 0);
    assert!(!std::path::Path::new("/run/millrace/lab").join(&name).exists());
    let (known, said) = millrace(&["lab", "exec", &lab.0, "h1", "--", "true"]);
    assert!(!known && said.contains(&name), "{said}");
}

#[test]
fn a_links_delay_is_seen_by_ping() {
    let Some(_ground) = Ground::enter_alone(&["ping", "nsenter"]) else { return };
    let line = Line::new();
    let name = format!("mrdelay{}", std::process::id());
    let file = example(&line, &name, "impairment = { delay-ms = 20, seed = 1 }\n");
    let (up, said) = millrace(&["lab", "up", &file]);
    let _lab = Up(name.clone());
    assert!(up, "{said}");
    millrace(&["lab", "exec", &name, "h1", "--", "ping", "-c", "1", "10.2.0.2"]);
    let ping = ["lab", "exec", &name, "h1", "--", "ping", "-c", "5", "-i", "0.2", "10.2.0.2"];
    let (pinged, said) = millrace(&ping);
    assert!(pinged, "{said}");
    let least: f64 = said.rsplit("= ").next().unwrap().split('/').next().unwrap().parse().unwrap();
    assert!((20.0..70.0).contains(&least), "{said}");
}

/// Brings an unchanged example up, waits until a ping arrives, and takes it down.
fn assert_example_carries_a_ping(name: &str, address: &str) {
    let file = format!("../examples/lab/{name}.toml");
    let (up, said) = millrace(&["lab", "up", &file]);
    let _lab = Up(name.to_owned());
    assert!(up, "{said}");
    let ping = ["lab", "exec", name, "h1", "--", "ping", "-c", "1", "-W", "1", address];
    millrace_testkit::eventually("a ping arrives", std::time::Duration::from_secs(50), || {
        millrace(&ping).0.then_some(())
    });
    let socket =
        format!("/run/millrace/lab/{name}/{}.sock", if name == "static-routes" { "west" } else { "r" });
    let (asked, said) = millrace(&["--socket", &socket, "show", "summary", "--json"]);
    let summary: serde_json::Value = serde_json::from_str(&said).expect(&said);
    assert!(asked && summary["transmitted"].as_u64() > Some(0), "{said}");
    let (down, said) = millrace(&["lab", "down", &file]);
    assert!(down, "{said}");
}

#[test]
fn the_example_of_static_routes_carries_a_ping() {
    let Some(_ground) = Ground::enter(&["ping", "nsenter"]) else { return };
    assert_example_carries_a_ping("static-routes", "10.2.0.2");
}

#[test]
fn the_example_of_bird_carries_a_ping_to_a_learned_network() {
    let Some(_ground) = Ground::enter(&["ping", "nsenter", "bird"]) else { return };
    assert_example_carries_a_ping("bird", "10.9.0.1");
}

#[test]
fn the_example_of_frr_carries_a_ping_to_a_learned_network() {
    let Some(_ground) = Ground::enter(&["ping", "nsenter", "vtysh"]) else { return };
    assert_example_carries_a_ping("frr", "10.9.0.1");
}
