//! The command `plugin`.

use std::path::{Path, PathBuf};

use hyper::Method;
use millrace_kit::Progress;
use millrace_units::count;
use millrace_workbench::{Module, check};
use serde_json::{Value, json};

use crate::arguments::{Noun, PluginAction, PluginUpgrade};
use crate::client::{Client, segment};
use crate::commands::observe::show::show;
use crate::commands::plugins::inspect::inspect;
use crate::commands::plugins::workbench;
use crate::output::{Failure, done, plain, rows};

/// Creates, builds, tries, signs, loads, unloads and lists plugins. `remote` connects to the running router.
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
                "{} written, {}; next: millrace plugin build {0}",
                folder.display(),
                count(files.len(), "file")
            );
            done(&json!({"name": name, "folder": folder, "files": files}), &text, json);
        }
        PluginAction::Build { dir, runtime } => build(dir, *runtime, json)?,
        PluginAction::Inspect { what, public_key } => inspect(remote, what, public_key, json)?,
        PluginAction::Manual { name } => {
            let page = millrace_controller::manual_page(name).map_err(Failure::new)?;
            done(&json!({"name": name, "manual": page}), page.trim_end(), json);
        }
        PluginAction::Test(test) => workbench::test(test, json)?,
        PluginAction::Bench(bench) => workbench::bench(bench, json)?,
        PluginAction::Keygen { out } => keygen(out, json)?,
        PluginAction::Sign { file, key } => sign(file, key, json)?,
        PluginAction::Load { file, allow_downgrade, runtime } => {
            let client = remote()?;
            let mut body = json!({"file": at_router(&client, file)?, "allow_downgrade": allow_downgrade});
            if let Some(runtime) = runtime {
                body["runtime"] = json!(runtime);
            }
            let value = client.send(Method::POST, "/plugins", Some(&body))?;
            let [name, version, signature, runtime] =
                ["name", "version", "signature", "runtime"].map(|key| plain(&value[key]));
            done(&value, &format!("plugin {name} {version} loaded, {signature}; {runtime}"), json);
        }
        PluginAction::Upgrade(upgrade) => upgrade_by(&remote()?, upgrade, json)?,
        PluginAction::Rollback { name } => {
            let place = format!("/plugins/{}/rollback", segment(name));
            let value = remote()?.send(Method::POST, &place, None)?;
            done(&value, &upgraded(&value), json);
        }
        PluginAction::Unload { name } => {
            let value = remote()?.send(Method::DELETE, &format!("/plugins/{}", segment(name)), None)?;
            done(&value, &format!("plugin {name} unloaded"), json);
        }
        PluginAction::List => show(&remote()?, Noun::Plugins, json)?,
    }
    Ok(())
}

fn build(dir: &Path, format: millrace_kit::Format, json: bool) -> Result<(), Failure> {
    let mut tell = |progress: Progress<'_>| match progress {
        Progress::Step(line) => eprintln!("{line}"),
        Progress::Output(line) => eprintln!("  {line}"),
    };
    let built = millrace_kit::build(dir, format, &millrace_kit::Options::default(), &mut tell)
        .map_err(Failure::new)?;
    Module::read(&built.file).and_then(|module| check(&module)).map_err(|error| {
        let file = built.file.display();
        Failure::new(format!("{file} built, but the router would refuse it: {error}"))
    })?;
    let text = format!("{} built, {}", built.file.display(), count(built.bytes, "byte"));
    done(&json!({"file": built.file, "bytes": built.bytes}), &text, json);
    Ok(())
}

fn keygen(out: &Path, json: bool) -> Result<(), Failure> {
    let made = millrace_repository::generate(out).map_err(Failure::new)?;
    let (secret, public, key) = (made.secret.display(), made.public.display(), &made.key);
    let text = format!(
        "{secret} is the secret key {}: keep it secret\n{public} is the public key; for the router's configuration:\n\n[plugins]\nkeys = [\"{key}\"]",
        key.id()
    );
    let value = json!({"secret": made.secret, "public": made.public, "key": key.to_string(), "id": key.id().to_string()});
    done(&value, &text, json);
    Ok(())
}

fn sign(file: &Path, key: &Path, json: bool) -> Result<(), Failure> {
    let signed = millrace_repository::sign_file(file, key).map_err(Failure::new)?;
    let (beside, id) = (signed.signature.display(), signed.key.id());
    let text = format!("{beside} is written, with the key {id}, for: {}", signed.claims);
    let value =
        json!({"signature": signed.signature, "id": id.to_string(), "claims": signed.claims.to_string()});
    done(&value, &text, json);
    Ok(())
}

/// Returns the path of a plugin file as the router has to open it. For a local router, makes the path
/// absolute. For a remote router, the path names a file on the router's machine, and must be absolute.
fn at_router(client: &Client, file: &Path) -> Result<PathBuf, Failure> {
    if !client.is_elsewhere() {
        let path = file.canonicalize();
        return path.map_err(|error| Failure::new(format!("{}: {error}", file.display())));
    }
    file.is_absolute().then(|| file.to_owned()).ok_or_else(|| {
        let what = "with --server, give the absolute path of the file on the router's machine";
        Failure::usage(format!("{}: {what}", file.display()))
    })
}

fn upgrade_by(client: &Client, upgrade: &PluginUpgrade, json: bool) -> Result<(), Failure> {
    let body = json!({
        "file": at_router(client, &upgrade.file)?,
        "shadow": upgrade.shadow,
        "accept_differences": upgrade.accept_differences,
        "without_state": upgrade.without_state,
        "allow_downgrade": upgrade.allow_downgrade,
    });
    let place = format!("/plugins/{}", segment(&upgrade.name));
    let value = client.send(Method::PUT, &place, Some(&body))?;
    done(&value, &upgraded(&value), json);
    Ok(())
}

/// Formats the result of an upgrade.
fn upgraded(value: &Value) -> String {
    let [name, from, to, state] = ["name", "from", "to", "state"].map(|key| plain(&value[key]));
    let instances = value["instances"].as_array().map_or(0, Vec::len);
    let mut text = format!("plugin {name}: {from} replaced by {to}, in {}; ", count(instances, "instance"));
    text += &match (instances, value["state"].as_u64()) {
        (1.., Some(0)) if rows(&value["lost"]).is_empty() => {
            "they restart, because no state was handed over".to_owned()
        }
        _ => format!("{} of state handed over", count(state, "byte")),
    };
    if let Some(shadow) = value["shadow"].as_object() {
        let [different, packets] = ["different", "packets"].map(|key| plain(&shadow[key]));
        text += &format!("\nthe new version treated {different} of {} differently", count(packets, "packet"));
    }
    for lost in value["lost"].as_array().into_iter().flatten() {
        text += &format!("\nlost state: {}", plain(lost));
    }
    text
}
