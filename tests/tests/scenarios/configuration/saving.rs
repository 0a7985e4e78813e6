//! Saved configurations: `save` writes the running configuration into its file, and keeps comments.

use std::fs;
use std::path::Path;

use millrace_testkit::{Ground, Line, Millrace};

use super::changes::{BASE, start};

#[test]
fn running_configuration_is_saved_into_the_file_with_its_comments() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let (router, path) = start(&line, BASE);
    assert!(router.ask(&["save"]).contains("nothing changed"));
    router.ask(&["route", "add", "10.9.0.0/16", "via", "10.2.0.2"]);
    router.ask(&["filter", "remove", "0"]);
    router.ask(&["filter", "add", "proto udp dport 53", "--action", "drop"]);
    router.ask(&["instance", "create", "port-filter", "pf", "ports=80"]);
    router.ask(&["bind", "pf", "--gate", "firewall", "--filter", "in lan", "--budget", "500us"]);
    // The instance `both` gets the id of `a`, which is lower than the id of the instance that it names.
    router.ask(&["instance", "create", "null", "a"]);
    router.ask(&["instance", "create", "statistics", "t"]);
    router.ask(&["instance", "free", "a"]);
    router.ask(&["instance", "create", "spread", "both", "to=t"]);
    router.ask(&["scheduler", "add", "wan", "all", "--kind", "fq-codel"]);
    router.ask(&["gate", "create", "late", "audit"]);
    assert!(router.ask(&["save"]).contains(&format!("saved the running configuration to {path}")));
    let saved = fs::read_to_string(&path).unwrap();
    for kept in ["# The branch office 👩‍🌾.", "# to the provider"] {
        assert!(saved.contains(kept), "{kept}: {saved}");
    }
    assert!(!saved.contains("dport 25"), "{saved}");
    assert!(router.ask(&["diff", &path]).contains("equals the running configuration"), "{saved}");
    drop(router);
    // A router started with the saved file has the same configuration.
    let router = Millrace::start(&line.r, &format!("--config {path}"));
    assert!(router.ask(&["save"]).contains("nothing changed"), "{saved}");
    let copy = line.file("copy.toml").display().to_string();
    router.ask(&["save", &copy]);
    assert!(router.ask(&["diff", &copy]).contains("equals the running configuration"));
}

#[test]
fn saved_configuration_runs_again_after_a_sudden_death() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let state = format!("[plugins]\nstate = \"{}\"\n", line.file("state").display());
    let text = format!("{BASE}{state}").replace("[router]", "[router]\nboot = \"last-good\"");
    let (mut router, path) = start(&line, &text);
    router.ask(&["apply", &path]);
    router.ask(&["filter", "add", "proto tcp dport 8080", "--action", "drop"]);
    let saved = router.json(&["save", "--comment", "no proxies"]);
    assert_eq!((saved["changed"].as_bool(), saved["revision"].as_u64()), (Some(true), Some(2)));
    router.kill();
    drop(router);
    let router = Millrace::start(&line.r, &format!("--config {path}"));
    assert!(router.log().contains("starting from revision 2"), "{}", router.log());
    assert!(router.ask(&["filter", "list"]).contains("proto tcp dport 8080"));
    assert_eq!(router.json(&["history"])[0]["comment"], "no proxies");
    assert!(router.ask(&["save"]).contains("nothing changed"));
    // `save` doesn't overwrite text that a user wrote into the file and did not apply.
    let hand = format!(
        "{}\n# later\n[[filter]]\nmatch = \"proto tcp dport 99\"\naction = \"drop\"\n",
        fs::read_to_string(&path).unwrap()
    );
    fs::write(&path, &hand).unwrap();
    router
        .try_ask(&["save"])
        .assert_refused(1, &["filter add 'proto tcp dport 99' --action drop", "--force"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), hand);
    let told = router.ask(&["save", "-"]);
    let has_new = |text: &str| text.contains("proto tcp dport 8080") && !text.contains("proto tcp dport 99");
    assert!(has_new(&told) && told.contains("# no mail"), "{told}");
    router.ask(&["save", "--force"]);
    let forced = fs::read_to_string(&path).unwrap();
    assert!(has_new(&forced), "{forced}");
}

#[test]
fn a_command_that_dies_at_any_call_of_saving_leaves_the_old_file_or_the_new_one() {
    let Some(_ground) = Ground::enter(&["strace"]) else { return };
    let line = Line::new();
    let text = format!("{BASE}[plugins]\nstate = \"{}\"\n", line.file("state").display());
    let (router, path) = start(&line, &text);
    router.ask(&["filter", "add", "proto tcp dport 8080", "--action", "drop"]);
    let old = fs::read_to_string(&path).unwrap();
    let new = router.ask(&["save", "-"]);
    assert!(old != new && new.contains("proto tcp dport 8080"));
    let (mut ends, folder) = ([0, 0], Path::new(&path).parent().unwrap().display().to_string());
    for call in ["openat", "write", "fchmod", "fchown", "fsync", "rename"] {
        for time in 1.. {
            fs::write(&path, &old).unwrap();
            let client = router.client();
            let mut saving = line.r.command("strace");
            let log = line.file("strace.log").display().to_string();
            saving.args(["-f", "-o", &log, "-e", &format!("trace={call}")]);
            saving.args(["-e", &format!("inject={call}:signal=KILL:when={time}")]);
            let beside = format!("{path}.new");
            [&path, &beside, &folder].into_iter().for_each(|watched| _ = saving.args(["-P", watched]));
            let saved =
                saving.arg(client.get_program()).args(client.get_args()).arg("save").output().unwrap();
            let now = fs::read_to_string(&path).unwrap();
            assert!(now == old || now == new, "at {call} {time}: {now}");
            if saved.status.success() {
                assert_eq!(now, new);
                break;
            }
            ends[usize::from(now == new)] += 1;
        }
    }
    assert!(ends[0] >= 6 && ends[1] >= 2, "it died too rarely: {ends:?}");
    // Files that a killed command leaves behind do no harm.
    assert!(router.ask(&["diff", &path]).contains("equals the running configuration"));
}
