//! Tests that labs can be built and carry traffic, and that they leave nothing behind, however they end.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use millrace_lab::{Lab, LabError, LabFile, Options, down, exec, list};

/// Lab name and directory that only this test uses.
struct Ground {
    name: String,
    directory: PathBuf,
}

impl Ground {
    /// Creates a unique name and directory. Returns `None` and prints the reason if labs can't be built here.
    fn new() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let absent = ["ip", "nsenter", "ping", "ethtool"].into_iter().find(|program| !is_installed(program));
        let missing = match absent {
            Some(program) => Some(format!("{program} is not installed")),
            None if !nix::unistd::Uid::effective().is_root() => Some("needs root".to_owned()),
            None => None,
        };
        if let Some(why) = missing {
            assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{why}");
            println!("skipped: {why}");
            return None;
        }
        let name = format!("t{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(format!("millrace-lab-{name}"));
        fs::create_dir_all(&directory).unwrap();
        Some(Self { name, directory })
    }

    fn options(&self) -> Options {
        let mut options = Options::new(self.directory.join("millrace"));
        options.runtime_directory = self.directory.join("run");
        options
    }

    fn runtime(&self) -> PathBuf {
        self.directory.join("run")
    }

    fn file(&self, router: &str, more: &str) -> LabFile {
        let text = format!(
            "[lab]\nname = \"{}\"\n\
             [[host]]\nname = \"h1\"\naddresses = [\"10.1.0.2/24\", \"fd00:1::2/64\"]\n\
             gateway = \"10.1.0.1\"\ngateway6 = \"fd00:1::1\"\n\
             [[host]]\nname = \"h2\"\naddresses = [\"10.2.0.2/24\", \"fd00:2::2/64\"]\n\
             gateway = \"10.2.0.1\"\ngateway6 = \"fd00:2::1\"\noffloads = false\n\
             [[router]]\nname = \"r\"\nkind = \"{router}\"\n\
             [[link]]\nends = [\"h1\", \"r:r1\"]\naddresses.r = [\"10.1.0.1/24\", \"fd00:1::1/64\"]\nmtu = 9000\n\
             [[link]]\nends = [\"h2\", \"r:r2\"]\naddresses.r = [\"10.2.0.1/24\", \"fd00:2::1/64\"]\n{more}",
            self.name
        );
        LabFile::parse(&text, &self.directory.join("lab.toml")).unwrap()
    }

    /// Writes a script that stands for the router's binary.
    fn fake_router(&self, script: &str) {
        let path = self.directory.join("millrace");
        fs::write(&path, format!("#!/bin/bash\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn assert_nothing_is_left(&self) {
        let namespaces = output("ip", &["netns", "list"]);
        assert!(!namespaces.contains(&self.name), "{namespaces}");
        let files: Vec<_> =
            fs::read_dir(self.runtime()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(files.is_empty(), "{files:?}");
        let processes = output("ps", &["-eo", "args"]);
        let ours = self.directory.join("millrace").display().to_string();
        assert!(!processes.contains(&ours), "{processes}");
        let links = output("ip", &["-brief", "link"]);
        assert!(!links.lines().any(|line| line.starts_with("r1@") || line.starts_with("r2@")), "{links}");
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = down(&self.name, &self.runtime());
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn is_installed(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).exists()))
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn ping(lab: &Lab, address: &str) -> bool {
    let mut command = lab.command("h1", "ping").unwrap();
    command.args(["-c", "1", "-W", "2", address]).stdout(Stdio::null()).status().unwrap().success()
}

#[test]
fn two_hosts_reach_each_other_and_leave_nothing() {
    let Some(ground) = Ground::new() else { return };
    let lab = Lab::up(&ground.file("kernel", ""), &ground.options()).unwrap();
    assert!(ping(&lab, "10.2.0.2"), "IPv4");
    assert!(ping(&lab, "fd00:2::2"), "IPv6");
    let mtu = lab.command("h1", "ip").unwrap().args(["link", "show", "eth0"]).output().unwrap();
    assert!(String::from_utf8_lossy(&mtu.stdout).contains("mtu 9000"));
    lab.down().unwrap();
    ground.assert_nothing_is_left();
}

#[test]
fn offloads_are_off_as_configured() {
    let Some(ground) = Ground::new() else { return };
    let lab = Lab::up(&ground.file("kernel", ""), &ground.options()).unwrap();
    let features = |node: &str| {
        let output = lab.command(node, "ethtool").unwrap().args(["-k", "eth0"]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(features("h1").contains("tcp-segmentation-offload: on"));
    let off = features("h2");
    for feature in ["tx-checksumming", "tcp-segmentation-offload", "generic-segmentation-offload"] {
        assert!(off.contains(&format!("{feature}: off")), "{off}");
    }
}

#[test]
fn a_kept_lab_is_listed_used_and_removed_by_name() {
    let Some(ground) = Ground::new() else { return };
    let (file, options, runtime) = (ground.file("kernel", ""), ground.options(), ground.runtime());
    let state = Lab::up(&file, &options).unwrap().keep();
    assert_eq!(list(&runtime).unwrap(), [state]);
    let again = Lab::up(&file, &options).unwrap_err();
    assert!(matches!(again, LabError::AlreadyUp(_)), "{again}");
    let seven = exec(&ground.name, "h2", &["sh".into(), "-c".into(), "exit 7".into()], &runtime);
    assert_eq!(seven.unwrap().code(), Some(7));
    let unknown = exec(&ground.name, "h3", &["true".into()], &runtime).unwrap_err().to_string();
    assert!(unknown.ends_with("has no node h3; its nodes: h1, h2, r"), "{unknown}");
    assert_eq!(down(&ground.name, &runtime).unwrap().map(|removed| removed.ended), Some(vec![]));
    assert!(down(&ground.name, &runtime).unwrap().is_none(), "nothing is left to remove");
    assert!(list(&runtime).unwrap().is_empty());
    ground.assert_nothing_is_left();
}

#[test]
fn failure_names_its_step_and_reverts_the_others() {
    let Some(ground) = Ground::new() else { return };
    // `ff02::1` is a multicast address: the check of the file accepts it, but the kernel refuses it.
    let mut file = ground.file("kernel", "");
    file.nodes[1].devices[0].addresses.push("ff02::1/128".parse().unwrap());
    let error = Lab::up(&file, &ground.options()).unwrap_err().to_string();
    assert!(error.starts_with("giving h2 its addresses: `ip -n "), "{error}");
    assert!(error.contains("address add ff02::1/128 dev eth0 nodad` failed: "), "{error}");
    ground.assert_nothing_is_left();
}

#[test]
fn a_foreign_namespace_is_left_alone() {
    let Some(ground) = Ground::new() else { return };
    let foreign = format!("{}-r", ground.name);
    assert!(Command::new("ip").args(["netns", "add", &foreign]).status().unwrap().success());
    let error = Lab::up(&ground.file("kernel", ""), &ground.options()).unwrap_err().to_string();
    let namespaces = output("ip", &["netns", "list"]);
    assert!(Command::new("ip").args(["netns", "delete", &foreign]).status().unwrap().success());
    assert!(error.contains(&format!("namespace {foreign} already exists")), "{error}");
    assert!(
        namespaces.contains(&foreign) && !namespaces.contains(&format!("{}-h1", ground.name)),
        "{namespaces}"
    );
    ground.assert_nothing_is_left();
}

#[test]
fn a_dropped_lab_goes_also_by_a_panic() {
    let Some(ground) = Ground::new() else { return };
    let result = std::panic::catch_unwind(|| {
        let _lab = Lab::up(&ground.file("kernel", ""), &ground.options()).unwrap();
        panic!("on purpose");
    });
    assert!(result.is_err());
    ground.assert_nothing_is_left();
}

/// Script that stands for a router. It writes its arguments to a file, announces that it is ready, and waits.
/// `${@: -1}` is the number of the descriptor for the announcement.
const OBEDIENT: &str = "dir=$(dirname \"$0\"); echo \"$@\" > \"$dir/arguments\"\nip -o link > \"$dir/links\"\n\
                        fd=${@: -1}; printf 'ready\\n' >&$fd\nexec -a \"$0\" sleep 60";

#[test]
fn router_runs_in_its_namespace_until_the_lab_is_removed() {
    let Some(ground) = Ground::new() else { return };
    ground.fake_router(OBEDIENT);
    let more = "[[host]]\nname = \"h3\"\n[[link]]\nends = [\"h3\", \"r:r3\"]\nimpairment = { loss = 0.5, delay-ms = 3 }\n";
    let file = ground.file("millrace", more);
    let lab = Lab::up(&file, &ground.options()).unwrap();
    let router = lab.node("r").unwrap().clone();
    assert!(router.is_running());
    let socket = router.socket.unwrap().display().to_string();
    let arguments = fs::read_to_string(ground.directory.join("arguments")).unwrap();
    assert!(arguments.starts_with(&format!("--socket {socket} run --config ")), "{arguments}");
    let links = fs::read_to_string(ground.directory.join("links")).unwrap();
    assert!(links.contains(" r1@") && links.contains(" r3@"), "{links}");
    let config = fs::read_to_string(socket.replace(".sock", ".toml")).unwrap();
    assert!(
        config.contains("device = \"r1\"")
            && config.contains("loss = 0.5")
            && config.contains("delay-ms = 3"),
        "{config}"
    );
    let process = router.process.unwrap();
    lab.down().unwrap();
    assert!(!process.is_running());
    ground.assert_nothing_is_left();
}

#[test]
fn a_router_that_ends_at_once_is_quoted() {
    let Some(ground) = Ground::new() else { return };
    ground.fake_router("echo 'no such port: r1' >&2; exit 1");
    let error = Lab::up(&ground.file("millrace", ""), &ground.options()).unwrap_err().to_string();
    let expected = "starting router r: router r ended (exit status: 1) before it was ready: no such port: r1";
    assert_eq!(error, expected);
    ground.assert_nothing_is_left();
}

#[test]
fn a_router_that_is_never_ready_is_given_up() {
    let Some(ground) = Ground::new() else { return };
    ground.fake_router("exec -a \"$0\" sleep 60");
    let options = Options { patience: Duration::from_secs(1), ..ground.options() };
    let error = Lab::up(&ground.file("millrace", ""), &options).unwrap_err().to_string();
    assert!(error.contains("router r was not ready within 1 s: no output"), "{error}");
    ground.assert_nothing_is_left();
}

#[test]
fn a_router_binary_that_is_not_there_is_named() {
    let Some(ground) = Ground::new() else { return };
    let error = Lab::up(&ground.file("millrace", ""), &ground.options()).unwrap_err().to_string();
    assert!(error.starts_with("starting router r: cannot run ") && error.contains("/millrace: "), "{error}");
    ground.assert_nothing_is_left();
}

#[test]
fn interrupt_during_creation_reverts_it() {
    let Some(ground) = Ground::new() else { return };
    ground.fake_router("exec -a \"$0\" sleep 60");
    let options = ground.options();
    let flag = options.interrupted.clone();
    let start = Instant::now();
    let record = ground.runtime().join(format!("{}.json", ground.name));
    let raise = std::thread::spawn(move || {
        while !Path::new(&record).exists() && start.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(5));
        }
        flag.store(true, Ordering::Relaxed);
    });
    let error = Lab::up(&ground.file("millrace", ""), &options).unwrap_err().to_string();
    raise.join().unwrap();
    assert!(error.ends_with(": interrupted"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(8));
    ground.assert_nothing_is_left();
}

#[test]
fn processes_started_at_a_node_end_with_the_lab_and_others_continue() {
    let Some(ground) = Ground::new() else { return };
    let (file, options, runtime) = (ground.file("kernel", ""), ground.options(), ground.runtime());
    Lab::up(&file, &options).unwrap().keep();
    let mut bystander = Command::new("sleep").arg("600").spawn().unwrap();
    // Three processes: one whose parent has ended, one that ignores SIGTERM, and one for which `exec` waits.
    let start = |command: &str| {
        exec(&ground.name, "h1", &["sh".into(), "-c".into(), command.into()], &runtime).unwrap();
    };
    start("setsid sleep 601 >/dev/null 2>&1 &");
    start("(trap '' TERM; setsid sh -c 'while :; do sleep 602; done') >/dev/null 2>&1 &");
    let waiting = std::thread::spawn({
        let (name, runtime) = (ground.name.clone(), runtime.clone());
        move || exec(&name, "h2", &["sleep".into(), "603".into()], &runtime).unwrap()
    });
    let sleeping = |seconds: &str| output("ps", &["-eo", "args"]).contains(&format!("sleep {seconds}"));
    let begun = Instant::now();
    while !["601", "602", "603"].into_iter().all(sleeping) && begun.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let removed = down(&ground.name, &runtime).unwrap().expect("the lab was up");
    let names: Vec<&str> = removed.ended.iter().map(|(name, _)| &**name).collect();
    assert!(names.contains(&"sleep") && names.contains(&"sh"), "{names:?}");
    for seconds in ["601", "602", "603"] {
        assert!(!sleeping(seconds), "sleep {seconds} is still there");
    }
    assert!(!waiting.join().unwrap().success());
    assert_eq!(bystander.try_wait().unwrap(), None, "who is elsewhere goes on");
    bystander.kill().unwrap();
    bystander.wait().unwrap();
    ground.assert_nothing_is_left();
}

#[test]
fn commands_run_after_creation_and_a_failing_command_is_quoted_and_reverts_the_lab() {
    let Some(ground) = Ground::new() else { return };
    let touched = ground.directory.join("touched");
    let host = |commands: &str| format!("[[host]]\nname = \"h9\"\ncommands = [{commands}]\n");
    let good = format!("'ip route show > {0}', 'echo second >> {0}'", touched.display());
    let lab = Lab::up(&ground.file("kernel", &host(&good)), &ground.options()).unwrap();
    assert!(fs::read_to_string(&touched).unwrap().ends_with("second\n"));
    lab.down().unwrap();
    let bad = "'true', 'echo no such thing >&2; exit 3'";
    let error = Lab::up(&ground.file("kernel", &host(bad)), &ground.options()).unwrap_err().to_string();
    let expected =
        "running a command at h9: `echo no such thing >&2; exit 3` failed (exit status: 3): no such thing";
    assert_eq!(error, expected);
    ground.assert_nothing_is_left();
}

/// Returns an example lab with its Millrace router replaced by a router whose kernel forwards. Other tests
/// cover the Millrace router.
fn example(name: &str, ground: &Ground) -> LabFile {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/lab").join(name);
    let text = fs::read_to_string(&path).unwrap();
    let own = format!("name = \"{}\"", ground.name);
    let text = text.replacen("name = \"bird\"", &own, 1).replacen("name = \"frr\"", &own, 1);
    LabFile::parse(&text.replace("kind = \"millrace\"", "kind = \"kernel\""), &path).unwrap()
}

fn reaches(lab: &Lab, address: &str, patience: Duration) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < patience {
        if ping(lab, address) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    false
}

#[test]
fn daemons_of_the_examples_learn_their_routes() {
    for (name, program) in [("bird.toml", "bird"), ("frr.toml", "frr")] {
        let Some(ground) = Ground::new() else { return };
        let place = if program == "bird" { "/usr/sbin/bird" } else { "/usr/lib/frr/zebra" };
        if !Path::new(place).exists() {
            assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{program} is not installed");
            println!("skipped: {program} is not installed");
            continue;
        }
        let lab = Lab::up(&example(name, &ground), &ground.options()).unwrap();
        assert!(reaches(&lab, "10.9.0.1", Duration::from_secs(40)), "{name}: no route was learned");
        let removed = lab.down().unwrap();
        assert!(removed.ended.is_empty(), "daemons are no strangers: {removed:?}");
        ground.assert_nothing_is_left();
    }
}

#[test]
fn daemon_that_refuses_its_configuration_is_quoted() {
    let Some(ground) = Ground::new() else { return };
    let more = "[[daemon]]\nnode = \"r\"\nprogram = \"bird\"\ntext = \"nonsense\"\n";
    let error = Lab::up(&ground.file("kernel", more), &ground.options()).unwrap_err().to_string();
    assert!(error.starts_with("starting bird at r: `bird -p -c "), "{error}");
    assert!(error.contains("bird.conf:1") && error.contains("syntax error"), "{error}");
    ground.assert_nothing_is_left();
}
