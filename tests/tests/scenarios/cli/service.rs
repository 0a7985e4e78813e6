//! The router as a service: its messages to the service manager, the permissions of the unit, and the
//! package.

use std::fs::read_to_string;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use millrace_testkit::{Background, Ground, Line, binary, eventually, repository};
use nix::sys::signal::Signal;

use crate::support::assert_hosts_talk;

/// Time limit for a message of the router.
const PATIENCE: Duration = Duration::from_secs(20);
/// Watchdog interval of the service manager, in microseconds.
const WATCHDOG: &str = "WATCHDOG_USEC=400000";

/// Returns the capabilities of the router under the unit, as setpriv(1) names them.
fn capabilities() -> String {
    let unit = read_to_string(repository().join("packaging/millrace.service")).expect("the unit");
    let set =
        unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).expect("capabilities");
    let names =
        set.split_ascii_whitespace().map(|name| format!("+{}", name.to_lowercase().replace("cap_", "")));
    std::iter::once("-all".to_owned()).chain(names).collect::<Vec<_>>().join(",")
}

/// Waits for a message of the router to the service manager that contains the line `wanted`.
fn hear(manager: &UnixDatagram, router: &Background, wanted: &str) {
    let mut message = [0; 256];
    loop {
        let failed = |error| panic!("{wanted}: {error}: {}", router.log());
        let length = manager.recv(&mut message).unwrap_or_else(failed);
        let text = String::from_utf8_lossy(&message[..length]);
        if text.lines().any(|line| line == wanted) {
            return;
        }
    }
}

#[test]
fn the_service_manager_hears_of_a_router_that_has_only_the_permissions_of_the_unit() {
    let Some(_ground) = Ground::enter_alone(&["ping", "setpriv"]) else { return };
    let line = Line::new();
    let (path, socket, config) = (line.file("notify"), line.file("router"), line.file("router.toml"));
    let state = line.file("state");
    let text = format!(
        "[plugins]\nstate = \"{}\"\n[[port]]\nname = \"r1\"\ndevice = \"r1\"\n[[port]]\nname = \"r2\"\ndevice = \"r2\"\n",
        state.display()
    );
    std::fs::write(&config, text).unwrap();
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let (notify, binary) = (format!("NOTIFY_SOCKET={}", path.display()), binary());
    let set = capabilities();
    let words = [
        &*notify,
        WATCHDOG,
        "setpriv",
        "--no-new-privs",
        "--bounding-set",
        &set,
        binary.to_str().unwrap(),
        "--socket",
        socket.to_str().unwrap(),
        "run",
        "--config",
        config.to_str().unwrap(),
    ];
    let mut router = Background::start(&line.r, "env", &words, line.file("router.log"));
    eventually("it says that it is ready, or ends", PATIENCE, || {
        let ended = !router.is_running();
        assert!(!ended, "{}", router.log());
        socket.exists().then_some(())
    });
    hear(&manager, &router, "READY=1");
    assert_hosts_talk(&line);
    (0..3).for_each(|_| hear(&manager, &router, "WATCHDOG=1"));
    let status = router.end_by(Signal::SIGTERM).expect("it ends");
    assert!(status.success(), "{}", router.log());
    hear(&manager, &router, "STOPPING=1");
    manager.set_nonblocking(true).unwrap();
    line.h1.run("ping -c 1 -W 2 10.2.0.2");
}

/// Runs a program that must succeed. Returns its output.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn package_contains_the_service_files_manual_pages_and_completions() {
    let Some(_ground) = Ground::enter(&["dpkg-deb", "strip", "objdump", "git"]) else { return };
    let line = Line::new();
    let (made, unpacked) = (line.file("package"), line.file("unpacked"));
    let mut make = Command::new(repository().join("tools/package"));
    let package = output(make.arg(binary()).arg(&made).env("PACKAGE_COMPRESSION", "none"));
    let package = Path::new(package.trim());
    output(Command::new("dpkg-deb").arg("-x").arg(package).arg(&unpacked));
    let unit = read_to_string(unpacked.join("usr/lib/systemd/system/millrace.service")).unwrap();
    let named = |key: &str| {
        let command = unit.lines().find_map(|line| line.strip_prefix(key)).expect(key);
        command.split(' ').filter(|word| word.starts_with('/')).map(|word| &word[1..]).collect::<Vec<_>>()
    };
    for file in [named("ExecStart="), named("ExecReload=")].concat() {
        assert!(unpacked.join(file).is_file(), "{file}");
    }
    let packed = unpacked.join("usr/bin/millrace");
    let check = output(Command::new(&packed).arg("check").arg(unpacked.join("etc/millrace/millrace.toml")));
    assert!(check.contains("is valid"), "{check}");
    let pages: Vec<_> = unpacked.join("usr/share/man/man1").read_dir().unwrap().collect();
    assert!(pages.len() > 50, "{} manual pages", pages.len());
    let bash = unpacked.join("usr/share/bash-completion/completions/millrace");
    output(Command::new("bash").arg("-n").arg(bash));
    let fields = output(Command::new("dpkg-deb").arg("-f").arg(package).arg("Package").arg("Depends"));
    assert!(fields.contains("Package: millrace") && fields.contains("libc6 (>= 2."), "{fields}");
}
