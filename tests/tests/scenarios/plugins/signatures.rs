//! Signatures of plugins: a router with configured keys loads only plugins signed with one of them.

use millrace_testkit::{Ground, Line, Millrace, run_to_end};

use crate::plugins::files::build;

#[test]
fn configured_key_admits_only_plugins_that_it_signed() {
    let Some(_ground) = Ground::enter(&["clang"]) else { return };
    let line = Line::new();
    let versions = ["0.1.0", "0.2.0"].map(|version| {
        let name = format!("v{}", version.replace('.', "-"));
        let module = build(&line, &name, |source| {
            source.replace(&name, "signed").replace("\\\"0.1.0", &format!("\\\"{version}"))
        });
        module.display().to_string()
    });
    let key = line.write("here", "").with_file_name("test.key").display().to_string();
    let made = run_to_end(&line.r, &["plugin", "keygen", "--out", &key, "--json"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let made: serde_json::Value = serde_json::from_str(&made.stdout).unwrap();
    let config = format!(
        "[plugins]\nstate = \"{}\"\nkeys = [{}]\n[[port]]\nname = \"r1\"\ndevice = \"r1\"\n[[port]]\nname = \"r2\"\ndevice = \"r2\"\n",
        line.file("state").display(),
        made["key"]
    );
    let config = line.write("router.toml", &config);
    let start = || Millrace::start(&line.r, &format!("--config {}", config.display()));
    let mut router = start();
    let [old, new] = &versions;
    router.try_ask(&["plugin", "load", new]).assert_refused(1, &["unsigned"]);
    for module in &versions {
        let signed = run_to_end(&line.r, &["plugin", "sign", module, "--key", &key]);
        assert_eq!(signed.code, Some(0), "{signed:?}");
    }
    let id = made["id"].as_str().unwrap();
    assert!(router.ask(&["plugin", "load", new]).contains(&format!("signed 0.2.0 loaded, signed by {id}")));
    assert_eq!(router.row("plugins", "name", "signed")["signature"], format!("signed by {id}"));
    router.ask(&["plugin", "unload", "signed"]);
    router.try_ask(&["plugin", "load", old]).assert_refused(1, &["0.1.0", "0.2.0", "--allow-downgrade"]);
    router.ask(&["plugin", "load", old, "--allow-downgrade"]);
    let log = router.log();
    assert!(log.contains("plugin refused") && log.contains("plugin signed 0.2.0 loaded from"), "{log}");
    // The router remembers the version across a restart.
    router.kill();
    let mut router = start();
    router.try_ask(&["plugin", "load", old]).assert_refused(1, &["0.1.0", "0.2.0", "--allow-downgrade"]);
    router.ask(&["plugin", "load", new]);
    // While the version record is unreadable, the router loads no signed plugin. `--allow-downgrade` starts a
    // new record.
    router.kill();
    let versions = line.write("state/plugin-versions.json", "{\"format\":1,");
    let router = start();
    assert!(router.log().contains("plugin-versions.json can't be read"), "{}", router.log());
    router
        .try_ask(&["plugin", "load", new])
        .assert_refused(1, &["plugin-versions.json", "--allow-downgrade"]);
    router.ask(&["plugin", "load", new, "--allow-downgrade"]);
    assert!(std::fs::read_to_string(&versions).unwrap().contains("0.2.0"));
    assert!(versions.with_file_name("plugin-versions.json.damaged").exists());
    router.ask(&["plugin", "unload", "signed"]);
    router.try_ask(&["plugin", "load", old]).assert_refused(1, &["0.1.0", "0.2.0"]);
}

#[test]
fn fault_31_no_flipped_bit_other_file_or_revoked_key_gets_a_signed_plugin_loaded() {
    const FLIPS: usize = 100;
    let Some(_ground) = Ground::enter(&["clang"]) else { return };
    let line = Line::new();
    let module = build(&line, "signed", |source| source);
    let [key, other] = ["test.key", "other.key"].map(|name| line.file(name).display().to_string());
    let made = [&key, &other].map(|key| {
        let made = run_to_end(&line.r, &["plugin", "keygen", "--out", key, "--json"]);
        serde_json::from_str::<serde_json::Value>(&made.stdout).unwrap()["key"].clone()
    });
    let path = module.display().to_string();
    assert_eq!(run_to_end(&line.r, &["plugin", "sign", &path, "--key", &key]).code, Some(0));
    let config = |key: &serde_json::Value| {
        let text = format!(
            "[plugins]\nstate = \"{}\"\nkeys = [{key}]\n[[port]]\nname = \"r1\"\ndevice = \"r1\"\n[[port]]\nname = \"r2\"\ndevice = \"r2\"\n",
            line.file("state").display()
        );
        format!("--config {}", line.write("router.toml", &text).display())
    };
    let mut router = Millrace::start(&line.r, &config(&made[0]));
    let before = router.json(&["plugin", "list"]);
    let whole = std::fs::read(&module).unwrap();
    let flipped = module.with_file_name("flipped.wasm");
    std::fs::copy(format!("{path}.minisig"), format!("{}.minisig", flipped.display())).unwrap();
    // The unchanged copy has a valid signature.
    std::fs::write(&flipped, &whole).unwrap();
    router.ask(&["plugin", "load", flipped.to_str().unwrap()]);
    router.ask(&["plugin", "unload", "signed"]);
    for flip in 0..FLIPS {
        // The flipped bits are spread over the file, including its first and last bit. A unit test of the
        // loader flips bits of signatures.
        let bit = flip * (whole.len() * 8 - 1) / (FLIPS - 1);
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&flipped, bytes).unwrap();
        let ended = router.try_ask(&["plugin", "load", flipped.to_str().unwrap()]);
        assert_eq!(ended.code, Some(1), "bit {bit}: {ended:?}");
    }
    assert_eq!(router.json(&["plugin", "list"]), before, "a file with a flipped bit was loaded");
    let audit = router.ask(&["audit"]);
    assert!(audit.lines().filter(|line| line.contains("plugin")).count() >= FLIPS, "{audit}");
    router.ask(&["plugin", "load", &path]);
    // The router runs a copy of the file. It refuses the changed file when that is loaded.
    std::fs::write(&module, "no module").unwrap();
    router.ask(&["instance", "create", "signed", "i1"]);
    router.try_ask(&["plugin", "upgrade", "signed", &path]).assert_refused(1, &["signed"]);
    assert_eq!(router.row("instances", "name", "i1")["health"], "well");
    // Removing a key from the configuration revokes it.
    std::fs::write(&module, &whole).unwrap();
    router.kill();
    let router = Millrace::start(&line.r, &config(&made[1]));
    let ended = router.try_ask(&["plugin", "load", &path]);
    assert!(ended.code == Some(1) && ended.stderr.contains("key"), "{ended:?}");
}
