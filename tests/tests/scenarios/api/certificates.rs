//! Certificates that expire, are wrong, or are replaced while clients are connected.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::time::Duration;

use millrace_testkit::{Background, Ended, Ground, Line, Millrace, binary, eventually};

use crate::faults::clocks::{Clock, DAY};

const PATIENCE: Duration = Duration::from_secs(10);

/// Router with a configured certificate, under a clock that the test sets.
struct Served {
    clock: Clock,
    line: Line,
    config: PathBuf,
}

impl Served {
    fn new() -> Self {
        let line = Line::new();
        let text = format!(
            "[plugins]\nstate = \"{}\"\n[api]\nlisten = [\"10.1.0.1:8443\"]\ncertificate = \"{}\"\nkey = \"{}\"\n\
             [[port]]\nname = \"lan\"\ndevice = \"r1\"\n[[port]]\nname = \"wan\"\ndevice = \"r2\"\n",
            line.file("state").display(),
            line.file("c.pem").display(),
            line.file("k.pem").display()
        );
        let (clock, config) = (Clock::new(&line), line.write("router.toml", &text));
        Self { clock, line, config }
    }

    /// Makes a certificate for a number of days. Returns the texts of certificate and key.
    fn made(&self, days: u32) -> [String; 2] {
        let [certificate, key] = ["made.crt", "made.key"].map(|name| self.line.file(name));
        self.line.r.run(&format!(
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days {days} -subj /CN=router \
             -addext subjectAltName=IP:10.1.0.1 -addext basicConstraints=critical,CA:FALSE -keyout {} -out {} 2>&1",
            key.display(),
            certificate.display()
        ));
        [certificate, key].map(|path| fs::read_to_string(path).unwrap())
    }

    fn put(&self, [certificate, key]: &[String; 2]) {
        self.line.write("c.pem", certificate);
        self.line.write("k.pem", key);
    }

    fn router(&self) -> Millrace {
        self.clock.router(&self.line, &format!("--config {}", self.config.display()))
    }

    /// Runs `millrace --server …` on a host that trusts a certificate, with a clock `ahead` seconds ahead of
    /// real time.
    fn ask(&self, trusted: &str, ahead: i64, words: &[&str]) -> Ended {
        let trusted = self.line.write("trusted.pem", trusted);
        let token = self.line.file("token");
        let by = Clock::new(&self.line);
        by.set(ahead);
        let mut command = self.line.h1.command("env");
        command.args(&by.by[1..]).arg(binary()).args(["--server", "https://10.1.0.1:8443"]);
        command.arg("--token-file").arg(token).arg("--ca").arg(trusted).args(words);
        let output = command.output().unwrap();
        Ended {
            code: output.status.code(),
            signal: output.status.signal(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

#[test]
fn certificate_is_replaced_atomically_during_sessions_and_invalid_ones_are_refused() {
    let Some(_ground) = Ground::enter(&["clang", "openssl", "curl"]) else { return };
    let served = Served::new();
    let first = served.made(1);
    served.put(&first);
    let router = served.router();
    let token = router.ask(&["token", "create", "t", "--role", "admin"]);
    served.line.write("token", &token);
    let status = ["show", "status"];
    assert_eq!(served.ask(&first[0], 0, &status).code, Some(0), "{}", router.log());
    // A session that lasts across the replacement.
    let trusted = served.line.write("first.pem", &first[0]).display().to_string();
    let (log, token) = (served.line.file("events.log"), served.line.file("token").display().to_string());
    let server = ["--server", "https://10.1.0.1:8443", "--token-file", &token, "--ca", &trusted];
    let words = [&server[..], &["events", "--follow"]].concat();
    let program = binary().display().to_string();
    let session = Background::start(&served.line.h1, &program, &words, log);
    // First only half of the new key, then the new certificate with its whole key.
    let second = served.made(3650);
    served.line.write("k.pem", &second[1][..second[1].len() / 2]);
    eventually("it is told", PATIENCE, || router.log().contains("the old one stays in use").then_some(()));
    assert_eq!(served.ask(&first[0], 0, &status).code, Some(0), "{}", router.log());
    served.put(&second);
    eventually("the new one is in use", PATIENCE, || {
        (served.ask(&second[0], 0, &status).code == Some(0)).then_some(())
    });
    assert!(router.log().contains("valid until 20"), "{}", router.log());
    served.ask(&first[0], 0, &status).assert_refused(1, &["its certificate", "no trusted issuer", "--ca"]);
    // `save` causes an event, which the session must show.
    router.try_ask(&["apply", &served.line.file("c.pem").display().to_string()]);
    router.ask(&["save", &served.line.file("saved.toml").display().to_string()]);
    eventually("the session goes on", PATIENCE, || {
        session.log().contains("configuration-saved").then_some(())
    });
    // The port accepts TLS only.
    let plain =
        served.line.h1.try_run("curl -s -m 5 -o /dev/null -w '%{http_code}' http://10.1.0.1:8443/status");
    assert_eq!(String::from_utf8_lossy(&plain.stdout), "000");
    // The router refuses an expired certificate and keeps the one in use.
    served.clock.set(2 * DAY);
    served.put(&first);
    eventually("it is told", PATIENCE, || router.log().contains("c.pem expired 20").then_some(()));
    assert_eq!(served.ask(&second[0], 0, &status).code, Some(0), "{}", router.log());
}

#[test]
fn expired_certificate_stops_clients_but_not_forwarding() {
    let Some(_ground) = Ground::enter(&["clang", "openssl", "curl", "ping"]) else { return };
    let served = Served::new();
    let old = served.made(1);
    served.put(&old);
    served.clock.set(2 * DAY);
    let router = served.router();
    let token = router.ask(&["token", "create", "t", "--role", "admin"]);
    served.line.write("token", &token);
    assert!(
        router.log().contains("TLS clients can't connect") && router.log().contains("c.pem expired 20"),
        "{}",
        router.log()
    );
    served.line.h1.run("ping -c 2 -i 0.2 10.2.0.2");
    let status = ["show", "status"];
    assert_eq!(served.ask(&old[0], 0, &status).code, Some(1));
    for scheme in ["http", "https"] {
        let asked = format!("curl -sk -m 5 -o /dev/null -w '%{{http_code}}' {scheme}://10.1.0.1:8443/status");
        assert_eq!(String::from_utf8_lossy(&served.line.h1.try_run(&asked).stdout), "000", "{scheme}");
    }
    assert!(router.json(&status)["interface"]["fingerprint"].is_null());
    let new = served.made(3650);
    served.put(&new);
    eventually("the new one is in use", PATIENCE, || {
        (served.ask(&new[0], 0, &status).code == Some(0)).then_some(())
    });
    // Clients refuse a certificate that expires while in use, and name the time.
    served.ask(&new[0], 20 * 365 * DAY, &status).assert_refused(1, &["its certificate expired 20"]);
    served.ask(&new[0], -10 * 365 * DAY, &status).assert_refused(1, &["its certificate is valid from 20"]);
    served.clock.set(20 * 365 * DAY);
    eventually("it is told", PATIENCE, || router.log().contains("in use expired 20").then_some(()));
}
