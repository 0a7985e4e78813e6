//! The command `plugin`.

use std::path::Path;

use hyper::Method;
use millrace_kit::{Home, Progress};
use serde_json::json;

use super::remote::{done, segment, show};
use crate::arguments::{Noun, PluginAction};
use crate::client::Client;
use crate::output::{Failure, plain};

/// Creates, builds, loads, unloads and lists plugins. `remote` is how the running router is reached.
pub fn plugin(
    remote: impl Fn() -> Result<Client, Failure>,
    action: &PluginAction,
    json: bool,
) -> Result<(), Failure> {
    match action {
        PluginAction::New { name, lang, dir } => {
            let folder = dir.as_deref().unwrap_or(Path::new(name));
            let files = millrace_kit::new(name, *lang, folder).map_err(Failure::new)?;
            let text = format!(
                "{} is written, {} files: now millrace plugin build {0}",
                folder.display(),
                files.len()
            );
            done(&json!({"name": name, "folder": folder, "files": files}), &text, json);
        }
        PluginAction::Build { dir } => {
            let mut tell = |progress: Progress<'_>| match progress {
                Progress::Step(line) => eprintln!("{line}"),
                Progress::Output(line) => eprintln!("  {line}"),
            };
            let built = millrace_kit::build(dir, Home::Wasm, &mut tell).map_err(Failure::new)?;
            let text = format!("{} is built, {} bytes", built.file.display(), built.bytes);
            done(&json!({"file": built.file, "bytes": built.bytes}), &text, json);
        }
        PluginAction::Load { file } => {
            let path = file.canonicalize();
            let path = path.map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
            let value = remote()?.send(Method::POST, "/plugins", Some(&json!({"path": path})))?;
            let [name, version] = ["name", "version"].map(|key| plain(&value[key]));
            done(&value, &format!("plugin {name} {version} is loaded"), json);
        }
        PluginAction::Unload { name } => {
            let value = remote()?.send(Method::DELETE, &format!("/plugins/{}", segment(name)), None)?;
            done(&value, &format!("plugin {name} is unloaded"), json);
        }
        PluginAction::List => show(&remote()?, Noun::Plugins, json)?,
    }
    Ok(())
}
