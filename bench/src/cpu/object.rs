//! Shared objects of the benchmarks, compiled by the C compiler of the machine.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use millrace_plugin::process::ProcessPlugin;
use millrace_plugin_process::{ChildCommand, ProcessKeeper};

use super::failed;
use crate::BenchError;
use crate::testbed::process::is_installed;
use crate::testbed::scratch::Scratch;

/// Plugin without the header of the kit, up to its statement for a packet. The offsets are those of the plugin ABI.
const BEGIN: &str = r#"#include <stdint.h>
#include <stdlib.h>
static const char text[] __attribute__((used, section("millrace.manifest"))) =
    "{\"abi\":1,\"name\":\"bench\",\"version\":\"1.0.0\",\"summary\":\"For benches.\",\"positions\":[\"late\"]}";
const char *millrace_manifest(void) { return text; }
void millrace_attach(const void *table) { (void)table; }
uint32_t millrace_abi(void) { return 1; }
void *millrace_reserve(size_t bytes) { return malloc(bytes ? bytes : 1); }
void millrace_release(void *address, size_t bytes) { (void)bytes; free(address); }
int32_t millrace_init(const uint8_t *settings, size_t bytes) { (void)settings; (void)bytes; return 0; }
void millrace_packets(const uint8_t *call) {
    const uint8_t *packet = *(const uint8_t *const *)(call + 16);
    for (uint32_t i = *(const uint32_t *)(call + 4); i > 0; i--, packet += 64) {
        const uint8_t *window = *(const uint8_t *const *)(packet + 8);
        (void)window;
"#;
const END: &str = "\n    }\n}\n";

/// Header of the kit.
const HEADER: &str = include_str!("../../../sdk/c/millrace.h");

/// Whether the machine has the C compiler.
pub(super) fn can_compile() -> bool {
    is_installed("cc")
}

/// Compiles a plugin named `bench` that runs a statement for each packet. `window` is the packet there.
pub(super) fn compile(statement: &str) -> Result<Vec<u8>, BenchError> {
    compile_whole(&[BEGIN, statement, END].concat(), &[])
}

/// Compiles a plugin to a shared object. Its code may include the header of the kit.
pub(super) fn compile_whole(code: &str, flags: &[&str]) -> Result<Vec<u8>, BenchError> {
    let scratch = Scratch::new()?;
    let (source, built) = (scratch.write("plugin.c", code)?, scratch.file("plugin.so"));
    scratch.write("millrace.h", HEADER)?;
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&built).arg(&source).args(flags);
    let output = cc.output().map_err(failed)?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr)));
    }
    std::fs::read(&built).map_err(failed)
}

/// Prepares a plugin whose processes the keeper starts.
pub(super) fn in_processes(object: &[u8], keeper: ProcessKeeper) -> Result<ProcessPlugin, BenchError> {
    ProcessPlugin::new(object, Arc::new(keeper)).map_err(failed)
}

/// Starts a keeper of processes. `binary`: the router's binary. Processes inherit processor and priority of the
/// calling thread.
pub(super) fn keeper(binary: &Path) -> Result<ProcessKeeper, BenchError> {
    let command = ChildCommand { program: binary.to_owned(), ..ChildCommand::own() };
    ProcessKeeper::start(command).map_err(failed)
}
