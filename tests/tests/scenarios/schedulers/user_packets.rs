//! Packets of user processes: those of a principal's processes get its rate at a port.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use millrace_testkit::{Background, Ground, Line, Millrace, eventually};

/// Rate of the principal and of the port in bit/s, and time of the measurement.
const RESERVED: f64 = 6e6;
const TIME: Duration = Duration::from_secs(4);

const CONFIGURATION: &str = r#"
[[port]]
name = "r1"
device = "r1"

[[port]]
name = "r2"
device = "r2"

[port.scheduler]
rate = "10 mbit"
default = "rest"
node = [{ name = "rest", kind = "fifo" }]

[[principal]]
name = "user"
link = { r2 = "6 mbit" }
"#;

/// Mount namespace with the hierarchy of version 2. Dropping it ends it.
struct SecondVersion {
    holder: Child,
    point: PathBuf,
}

impl SecondVersion {
    fn mount(line: &Line) -> Self {
        let point = line.file("groups");
        std::fs::create_dir(&point).unwrap();
        let script = format!("mount -t cgroup2 none {} && echo mounted && exec sleep 60", point.display());
        let mut holder =
            Command::new("unshare").args(["-m", "sh", "-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = [0; 8];
        std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut said).expect("version 2 is mounted");
        Self { holder, point }
    }

    /// Moves a process into a new group below that of the principal `user`.
    fn move_below(&self, process: u32) {
        let root = format!("/proc/{}/root{}", self.holder.id(), self.point.display());
        let groups = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
        let mut of_routers = groups.filter(|path| path.join("user").exists());
        let below = of_routers.next().expect("the router has a group").join("user/below");
        std::fs::create_dir(&below).unwrap();
        std::fs::write(below.join("cgroup.procs"), process.to_string()).unwrap();
    }

    /// Returns the argument of `nsenter` for this namespace.
    fn entry(&self) -> String {
        format!("--mount=/proc/{}/ns/mnt", self.holder.id())
    }
}

impl Drop for SecondVersion {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn server(line: &Line, port: &str) -> Background {
    let log = line.file(&format!("iperf3-{port}.log"));
    let server = Background::start(&line.h2, "iperf3", &["-s", "--forceflush", "-p", port], log);
    eventually("iperf3 listens", Duration::from_secs(5), || server.log().contains("listening").then_some(()));
    server
}

/// Returns the bytes on the wire that the queue of the principal has sent.
fn sent(router: &Millrace) -> f64 {
    let shown = router.json(&["queue", "show", "r2", "principal:user"]);
    shown["sent_wire_bytes"].as_f64().unwrap_or_else(|| panic!("{shown}"))
}

#[test]
fn packets_of_a_principals_process_get_its_rate_at_a_port() {
    let Some(_ground) = Ground::enter_alone(&["nsenter", "unshare", "iperf3"]) else { return };
    let line = Line::new();
    let groups = SecondVersion::mount(&line);
    let path = line.write("router.toml", CONFIGURATION).display().to_string();
    let entry = groups.entry();
    let router = Millrace::try_start_by(&line.r, &["nsenter", &entry], &format!("--config {path}"))
        .expect("it starts");
    let (_plain, _users) = (server(&line, "5201"), server(&line, "5202"));
    let log = |name: &str| line.file(name);
    let flood = ["-c", "10.2.0.2", "-u", "-b", "20M", "-t", "20", "-l", "1400"];
    let other =
        Background::start(&line.r, "iperf3", &[&flood[..], &["-p", "5201"]].concat(), log("other.log"));
    sleep(Duration::from_secs(1));
    assert_eq!(sent(&router), 0.0, "another process is not the principal's");
    let client = router.client();
    let mut command = Command::new("nsenter");
    command.args([&entry, &format!("--net=/run/netns/{}", line.r.name())]).arg(client.get_program());
    command.args(client.get_args()).args(["exec", "--principal", "user", "--", "iperf3"]).args(flood);
    command.args(["-p", "5202"]).stdout(Stdio::null());
    let mut user = command.spawn().unwrap();
    eventually("the user's packets enter its queue", Duration::from_secs(5), || {
        (sent(&router) > 1e5).then_some(())
    });
    sleep(Duration::from_millis(500));
    let (begun, before) = (Instant::now(), sent(&router));
    sleep(TIME);
    let rate = 8.0 * (sent(&router) - before) / begun.elapsed().as_secs_f64();
    println!("{:.2} Mb/s of {} Mb/s", rate / 1e6, RESERVED / 1e6);
    groups.move_below(user.id());
    let (begun, before) = (Instant::now(), sent(&router));
    sleep(TIME);
    let below = 8.0 * (sent(&router) - before) / begun.elapsed().as_secs_f64();
    println!("{:.2} Mb/s from a group below", below / 1e6);
    let _ = user.kill();
    let _ = user.wait();
    assert!(rate > 0.95 * RESERVED && below > 0.95 * RESERVED, "{rate} {below}");
    let promised = router.json(&["show", "promises"]);
    assert!(promised.to_string().contains("\"user\""), "{promised}");
    drop(other);
    router.assert_conservation();
}
