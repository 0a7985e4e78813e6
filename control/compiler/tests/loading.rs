//! Tests of loading plugins by a compiling process: its results, its limits, its confinement, and the cache.

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use millrace_compiler::{ChildCommand, CompileError, Compiler, CompilerSettings, Limits, Source};
use millrace_plugin::wasm::{InstanceSettings, ModuleError, Sandbox, SandboxSettings, Tier, WasmInstance};

/// Returns the module of a plugin, with the WebAssembly text `body` added.
fn module(body: &str) -> Vec<u8> {
    let manifest = r#"{\"abi\": 1, \"name\": \"test\", \"version\": \"1.0.0\", \"summary\": \"For tests.\", \"positions\": [\"late\"]}"#;
    let text = format!(
        r#"(module (@custom "millrace.manifest" "{manifest}")
           (memory (export "memory") 1)
           (func (export "millrace_abi") (result i32) i32.const 1)
           (func (export "millrace_reserve") (param i32) (result i32) i32.const 1024)
           (func (export "millrace_release") (param i32 i32))
           (func (export "millrace_init") (param i32 i32) (result i32) i32.const 0)
           (func (export "millrace_packets") (param i32))
           {body})"#
    );
    wat::parse_str(&text).unwrap()
}

fn child(what: &str) -> ChildCommand {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_compiler-child"));
    ChildCommand { program, arguments: vec![what.into()] }
}

fn settings(what: &str) -> CompilerSettings {
    CompilerSettings { command: child(what), ..CompilerSettings::default() }
}

fn compiler(settings: CompilerSettings) -> Compiler {
    Compiler::new(Sandbox::new(SandboxSettings::default()).unwrap(), settings)
}

/// Returns the error of loading a module with a compiling process that misbehaves as `what` says.
fn failure(what: &str, limits: Limits) -> CompileError {
    let settings = CompilerSettings { limits, ..settings(what) };
    compiler(settings).load(&module(""), |_, _| {}).unwrap_err()
}

fn short() -> Limits {
    Limits { time: Duration::from_millis(300), ..Limits::default() }
}

/// Returns the number of child processes of this process that have not been awaited.
fn children() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let of = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children"));
    tasks.filter_map(|task| of(task).ok()).map(|list| list.split_whitespace().count()).sum()
}

#[test]
fn a_plugin_begins_with_baseline_code_and_gets_better_code() {
    let (sender, receiver) = mpsc::channel();
    let upgraded = move |plugin: &millrace_plugin::wasm::WasmPlugin, result: Result<(), CompileError>| {
        sender.send((plugin.current().tier(), result)).unwrap();
    };
    let loaded = compiler(settings("compile-plugin")).load(&module(""), upgraded).unwrap();
    assert_eq!((loaded.plugin.tier(), loaded.source), (Tier::Baseline, Source::Compiled));
    let mut instance = WasmInstance::new(&loaded.plugin, InstanceSettings::default()).unwrap();
    assert_eq!(receiver.recv_timeout(Duration::from_secs(60)).unwrap(), (Tier::Optimised, Ok(())));
    instance.restart().unwrap();
}

#[test]
fn invalid_module_is_refused_with_its_reason() {
    let wrong = module("(func (result i32) i64.const 1)");
    let error = compiler(settings("compile-plugin")).load(&wrong, |_, _| {}).unwrap_err();
    let CompileError::Module(ModuleError::Compile(why)) = &error else { panic!("{error:?}") };
    assert!(why.contains("type mismatch"), "{why}");
    let none = compiler(settings("compile-plugin")).load(b"text", |_, _| {});
    assert!(matches!(none, Err(CompileError::Module(ModuleError::NotAModule(_)))));
}

#[test]
fn a_process_that_takes_too_long_is_killed_and_leaves_nothing() {
    for what in ["sleep", "close-and-sleep", "talk"] {
        let begun = Instant::now();
        let error = failure(what, short());
        assert_eq!(error, CompileError::TooLong(Duration::from_millis(300)), "{what}");
        assert_eq!(error.to_string(), "compilation aborted after 0.3 s");
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}

#[test]
fn code_that_is_too_long_is_refused() {
    let limits = Limits { code: 1 << 20, ..Limits::default() };
    assert_eq!(failure("write", limits), CompileError::TooLarge(1 << 20));
}

#[test]
fn failing_process_reports_its_reason() {
    let text = failure("abort", Limits::default()).to_string();
    assert!(text.starts_with("the compiler failed (signal 6)"), "{text}");
    let text = failure("fail", Limits::default()).to_string();
    assert_eq!(text, "the compiler failed (exit code 17)");
    let gone = ChildCommand { program: "/nowhere".into(), arguments: Vec::new() };
    let settings = CompilerSettings { command: gone, ..CompilerSettings::default() };
    let error = compiler(settings).load(&module(""), |_, _| {}).unwrap_err();
    assert!(matches!(error, CompileError::NoProcess(_)), "{error}");
}

#[test]
fn memory_beyond_the_limit_is_refused() {
    let limits = Limits { memory: 64 << 20, ..Limits::default() };
    let functions = "(func (param i32) (result i32) local.get 0)".repeat(300_000);
    let settings = CompilerSettings { limits, ..settings("compile-plugin") };
    let error = compiler(settings).load(&module(&functions), |_, _| {}).unwrap_err();
    assert_eq!(error, CompileError::TooMuchMemory(64 << 20), "{error}");
}

#[test]
fn nothing_but_computing_is_left_to_the_process() {
    // The process answers as if it refused the module, and names the operations that succeeded.
    let error = failure("escape", Limits::default());
    assert_eq!(error, ModuleError::Compile(String::new()).into());
    // Without confinement, the same operations must succeed.
    let CompileError::Module(ModuleError::Compile(worked)) = failure("stay", Limits::default()) else {
        panic!("it didn't answer");
    };
    for what in [
        "a file, by another thread",
        "a directory",
        "a new file",
        "UDP",
        "TCP",
        "a process",
        "a thread",
        "executable memory",
    ] {
        assert!(worked.contains(what), "{worked}");
    }
    let _ = std::fs::remove_file("/tmp/millrace-escape");
}

/// Directory that is removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("millrace-loading-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    fn settings(&self, what: &str) -> CompilerSettings {
        CompilerSettings { cache: Some(self.0.clone()), ..settings(what) }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Loads a module, and waits for its optimised code if it gets any.
fn loaded(settings: CompilerSettings, wasm: &[u8]) -> (Tier, Source) {
    let (sender, receiver) = mpsc::channel();
    let loaded = compiler(settings).load(wasm, move |_, result| sender.send(result).unwrap()).unwrap();
    if loaded.plugin.tier() == Tier::Baseline {
        receiver.recv_timeout(Duration::from_secs(60)).unwrap().unwrap();
    }
    (loaded.plugin.tier(), loaded.source)
}

#[test]
fn compiled_code_is_cached_and_changed_code_is_not_used() {
    let (folder, wasm) = (Folder::new("kept"), module(""));
    assert_eq!(loaded(folder.settings("compile-plugin"), &wasm), (Tier::Baseline, Source::Compiled));
    // A cache hit needs no compiling process: this one would fail.
    assert_eq!(loaded(folder.settings("fail"), &wasm), (Tier::Optimised, Source::Cache));
    let entries =
        || std::fs::read_dir(&folder.0).unwrap().flatten().filter(|file| file.file_name() != "secret");
    assert_eq!(entries().count(), 2);
    for entry in entries() {
        let mut content = std::fs::read(entry.path()).unwrap();
        let last = content.len() - 1;
        content[last] ^= 1;
        std::fs::write(entry.path(), content).unwrap();
    }
    assert_eq!(loaded(folder.settings("compile-plugin"), &wasm), (Tier::Baseline, Source::Compiled));
    assert_eq!(loaded(folder.settings("fail"), &wasm), (Tier::Optimised, Source::Cache));
    // Another module is not in the cache.
    let other = compiler(folder.settings("fail")).load(&module("(func)"), |_, _| {});
    assert!(matches!(other, Err(CompileError::Failed { .. })));
}

#[test]
fn a_directory_that_cannot_be_used_costs_time_only() {
    let file = Folder::new("file");
    std::fs::write(&file.0, "").unwrap();
    assert_eq!(loaded(file.settings("compile-plugin"), &module("")), (Tier::Baseline, Source::Compiled));
    std::fs::remove_file(&file.0).unwrap();
}

#[test]
fn no_process_is_left_behind() {
    // Tests that run in parallel have child processes of their own for a time.
    let _ = failure("sleep", short());
    let begun = Instant::now();
    while children() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(120), "a process is left");
        std::thread::sleep(Duration::from_millis(20));
    }
}
