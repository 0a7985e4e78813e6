//! Fuzz target of a WebAssembly plugin in the sandbox of a router. Its settings contain a script. By the
//! script, the plugin cuts, lengthens, writes and makes packets, answers and traps. The router neither panics
//! nor loses or invents a packet, and sends no malformed frame.

use std::sync::Arc;
use std::time::Duration;

use millrace_plugin::wasm::{LoadedPlugin, Sandbox, SandboxSettings};
use millrace_plugin_abi::Plugin;
use millrace_tests::STANDARD;

use crate::input::Input;
use crate::plugin_verdicts::{GATES, arrive, bound_at};
use crate::router::side::Side;

const MANIFEST: &str = r#"{"abi": 1, "name": "script", "version": "1.0.0", "summary": "Does what its settings say.",
    "positions": ["early", "route", "late", "queue", "copy"],
    "capabilities": ["packet-read", "packet-write", "packet-resize", "packet-make"],
    "settings": {"type": "object", "properties": {"script": {"type": "string"}}}}"#;
/// Maximum length of the script, in characters.
const LONGEST: usize = 128;
/// Maximum number of operations of a run.
const MOST: u32 = 32;

thread_local! {
    static PLUGIN: Arc<LoadedPlugin> = Arc::new(load());
}

/// Compiles the plugin, once per process.
fn load() -> LoadedPlugin {
    let manifest = MANIFEST.replace('"', "\\\"").replace('\n', " ");
    let text = include_str!("wasm_plugin.wat").replace("MANIFEST", &manifest);
    let module = wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}"));
    let sandbox = Sandbox::new(SandboxSettings::default()).unwrap_or_else(|error| panic!("{error}"));
    let plugin = sandbox.compile(&module).unwrap_or_else(|error| panic!("{error}"));
    LoadedPlugin::new(plugin).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs a router with the plugin, whose script the input determines.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let gate = input.pick(&GATES);
    let length = input.below(LONGEST / 4 + 1) * 4;
    // The script consists of the characters `]` to `|`, which TOML and JSON need not escape.
    let script: String = input.take(length).iter().map(|byte| char::from(b']' + byte % 32)).collect();
    let bound = bound_at(gate, "script");
    let text = format!(
        "[router]\nframes = 1024\nflows-max = 1024\n[plugins]\nstate = \"none\"\ncache = \"none\"\nfaults = 1000\n\
         fault-window = \"1s\"\n{STANDARD}\n[[instance]]\nplugin = \"script\"\nname = \"script\"\n\
         settings = {{ script = \"{script}\" }}\n{bound}"
    );
    let plugin: Arc<dyn Plugin> = PLUGIN.with(Arc::clone);
    let mut side = Side::new(&text, true, plugin, &mut |_, memory| Box::new(memory));
    for number in 0..MOST {
        if input.is_empty() {
            break;
        }
        arrive(&mut side, &mut input, number);
        side.router.run();
        side.outcome();
        side.router.advance(Duration::from_millis(u64::from(input.byte()) * 8));
        side.outcome();
    }
    side.drain();
}
