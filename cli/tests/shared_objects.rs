//! `plugin bench` and `plugin test` of shared objects: in confined processes, and in the process of the command.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

/// Lock of a running test: one measures while others would take the processors.
static ALONE: Mutex<()> = Mutex::new(());

/// Folder of a test that runs alone. It is removed at the end of the test.
struct Folder(PathBuf, #[expect(dead_code, reason = "held until the end")] MutexGuard<'static, ()>);

impl Folder {
    fn new(name: &str) -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let path = std::env::temp_dir().join(format!("millrace-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path, alone)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn millrace(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    command.env_remove("MILLRACE_SOCKET").env_remove("MILLRACE_LOG").args(arguments).output().unwrap()
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn value(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Builds a plugin that runs a statement for each packet, and writes a file in its constructor if it may. Returns
/// `None` without a C compiler.
fn built(folder: &Path, runtime: &str, statement: &str) -> Option<String> {
    let code = r#"
        #include "millrace.h"
        #include <fcntl.h>
        #include <unistd.h>
        MILLRACE_PLUGIN("{\"abi\":1,\"name\":\"object\",\"version\":\"1.0.0\",\"summary\":\"For tests.\",\"positions\":[\"late\"],\"period\":10}");
        __attribute__((constructor)) static void begin(void) { close(open("TRACE", O_CREAT | O_WRONLY, 0600)); }
        int32_t millrace_init(const uint8_t *settings, size_t bytes) { (void)settings; (void)bytes; return 0; }
        void millrace_periodic(uint64_t now) { (void)now; }
        void millrace_packets(struct millrace_call *call) {
            for (uint32_t i = 0; i < call->count; i++) { STATEMENT }
        }"#;
    let trace = folder.join("trace");
    fs::write(
        folder.join("plugin.c"),
        code.replace("STATEMENT", statement).replace("TRACE", trace.to_str().unwrap()),
    )
    .unwrap();
    let built = millrace(&["plugin", "build", folder.to_str().unwrap(), "--runtime", runtime]);
    if !built.status.success() && error(&built).contains("there is no cc") {
        println!("skipped: {}", error(&built));
        return None;
    }
    assert!(built.status.success(), "{built:?}");
    let extension = if runtime == "native" { "so" } else { "elf" };
    let name = folder.file_name().unwrap().to_str().unwrap();
    Some(folder.join(format!("{name}.{extension}")).to_str().unwrap().to_owned())
}

/// Whether the constructor of the plugin has written its file, which this removes.
fn left_a_trace(folder: &Path) -> bool {
    fs::remove_file(folder.join("trace")).is_ok()
}

#[test]
fn cost_of_a_shared_object_is_measured_and_written_in_both_runtimes() {
    let folder = Folder::new("object-cost");
    let Some(file) = built(&folder.0, "native", "millrace_packet(call, i)->tag = 1;") else { return };
    let costs = value(&millrace(&["plugin", "bench", &file, "--write", "--json"]));
    assert!(!left_a_trace(&folder.0), "the plugin ran outside of its process");
    assert!(costs["runtime"].as_str().unwrap().starts_with("confined"), "{costs}");
    assert_eq!((&costs["output"], &costs["ring"]["transfers"]), (&json!(1.0), &json!(2.0)));
    let ring = ["call", "packet", "byte"].map(|part| costs["ring"][part].as_f64().unwrap());
    assert!(ring.iter().sum::<f64>() > 0.0, "{costs}");
    // The memory that the process shares with the worker alone has more than 50 KiB.
    assert!(costs["resident"].as_u64().unwrap() > 50_000, "{costs}");
    let on = &costs["measured"]["on"];
    let part = |name: &str| on["process"][name].as_f64().unwrap_or(0.0);
    // A busy machine shifts cycles between the parts, and a part of 0 is not written.
    assert!(on["worker"].is_null() && part("call") + part("packet") + part("byte") > 0.0, "{on}");
    // 100 timers a second.
    assert!(part("fixed") > 1000.0, "{on}");

    let trusted = ["plugin", "bench", &file, "--write", "--json", "--runtime", "in-process"];
    let here = value(&millrace(&trusted));
    assert!(left_a_trace(&folder.0), "the plugin ran outside of the command");
    assert_eq!((&here["ring"], &here["declared"]["on"]), (&Value::Null, on));
    let inspected = value(&millrace(&["plugin", "inspect", &file, "--json"]));
    let written = &inspected["cost"]["on"];
    assert_eq!(
        (&written["process"], &written["worker"]),
        (&on["process"], &here["measured"]["on"]["worker"])
    );
    // The changed file is still a plugin whose code agrees with its manifest.
    let tried = value(&millrace(&["plugin", "test", &file, "--json"]));
    assert_eq!(tried["verdicts"]["pass"], 12);
}

#[test]
fn crash_of_a_shared_object_or_executable_is_an_error_of_the_command() {
    let folder = Folder::new("object-crash");
    for runtime in ["native", "executable"] {
        let Some(file) = built(&folder.0, runtime, "__builtin_trap();") else { return };
        let benched = millrace(&["plugin", "bench", &file]);
        let text = error(&benched);
        assert_eq!(benched.status.code(), Some(1), "{benched:?}");
        assert!(text.contains("failed during the measurement: crash") && text.contains("SIGILL"), "{text}");
        let tried = value_of_failure(&millrace(&["plugin", "test", &file, "--json"]));
        assert_eq!(tried["faults"][0]["kind"], "crash", "{tried}");
    }
}

/// Whether a process runs that this command has started for a shared object. The number of its user is 256 times the id of
/// the command, plus the number of the start.
fn left_a_process(command: u32) -> bool {
    let mut lines = fs::read_dir("/proc").unwrap().flatten().filter_map(|process| {
        let line = fs::read_to_string(process.path().join("cmdline")).ok()?;
        let number: u32 = line.split_once("plugin-process\0")?.1.split('\0').next()?.parse().ok()?;
        Some(number / 256)
    });
    lines.any(|of| of == command % (1 << 24))
}

#[test]
fn processes_that_begin_at_the_end_of_a_command_end_with_it() {
    let folder = Folder::new("object-end");
    let Some(file) = built(&folder.0, "native", "__builtin_trap();") else { return };
    for time in 0..20 {
        // Each crash begins another process.
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        command.args(["plugin", "test", &file]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut running = command.spawn().unwrap();
        assert_eq!(running.wait().unwrap().code(), Some(1));
        let ended = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            !left_a_process(running.id())
        });
        assert!(ended, "a process is left after command {time}");
    }
}

/// Returns the result of a command that failed after it had printed it.
fn value_of_failure(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn runtime_of_a_module_can_not_be_chosen() {
    let folder = Folder::new("object-module");
    let file = folder.0.join("a.wasm");
    fs::write(&file, b"\0asm\x01\0\0\0").unwrap();
    for command in ["bench", "test"] {
        let refused = millrace(&["plugin", command, file.to_str().unwrap(), "--runtime", "process"]);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(error(&refused).contains("a module always runs in the sandbox"), "{refused:?}");
    }
}
