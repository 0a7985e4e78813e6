//! Labs by the command line.

use std::process::Command;

use millrace_testkit::{Ground, Line, binary};

fn millrace(arguments: &[&str]) -> (bool, String) {
    let output = Command::new("timeout").arg("60").arg(binary()).args(arguments).output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

/// A lab that is taken down whatever happens.
struct Up(String);

impl Drop for Up {
    fn drop(&mut self) {
        millrace(&["lab", "down", &self.0]);
    }
}

/// The example, under a name that nobody else has.
fn example(line: &Line, name: &str, more: &str) -> String {
    let example = "../examples/lab/two-hosts.toml";
    let text = std::fs::read_to_string(example).unwrap();
    let text = text.replace("name = \"two-hosts\"", &format!("name = \"{name}\"")) + more;
    line.write("lab.toml", &text).display().to_string()
}

#[test]
fn the_example_comes_up_carries_a_ping_and_leaves_nothing() {
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
