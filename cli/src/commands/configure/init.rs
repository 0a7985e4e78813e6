//! The command `init`: generates a configuration for this machine.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use millrace_config::Config;
use millrace_host::{HostLink, HostRoute, HostState, Mirror, MirrorOptions};
use millrace_port::create_output;
use millrace_units::count;
use serde_json::json;

use crate::arguments::Init;
use crate::commands::doctor::unknown;
use crate::output::{Failure, put, say};

/// Maximum number of kernel routes listed as comments in the generated file.
const MOST_ROUTES: usize = 20;

/// Writes a configuration with the machine's devices as ports.
///
/// # Errors
/// A named device does not exist, the file already exists, or the devices can't be read.
pub fn init(asked: &Init, json: bool) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::new)?;
    let started = runtime.block_on(Mirror::start(MirrorOptions::default()));
    let (mirror, _changes) = started.map_err(Failure::new)?;
    let state = mirror.state();
    if let Some(name) = asked.devices.iter().find(|name| state.link_by_name(name).is_none()) {
        return Err(unknown(&state, name));
    }
    let text = configuration(&state, &asked.devices);
    // The generated configuration must be valid.
    Config::parse(&text, "init").map_err(Failure::new)?;
    match &asked.output {
        Some(path) => {
            write(path, &text, asked.force)?;
            eprintln!("{} written: review it, then run `millrace check {0}`", path.display());
        }
        None if json => say!("{:#}", json!({"text": text})),
        None => put(&text),
    }
    Ok(())
}

fn write(path: &Path, text: &str, force: bool) -> Result<(), Failure> {
    let opened = if force { create_output(path) } else { File::create_new(path) };
    let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| {
        let hint =
            if error.kind() == std::io::ErrorKind::AlreadyExists { ": --force overwrites it" } else { "" };
        Failure::new(format!("can't write {}: {error}{hint}", path.display()))
    })
}

/// Returns the configuration as commented TOML.
fn configuration(state: &HostState, devices: &[String]) -> String {
    let mut text = String::from(
        "# Configuration of a Millrace router, from what this machine has.\n\
         # Addresses and routes stay the kernel's (`ip address`, `ip route`, FRR, BIRD): the router mirrors them.\n\
         # Keys and values: docs/configuration.md. Check it: millrace check FILE. Run it: millrace run --config FILE.\n\n\
         [router]\n\
         on-death = \"kernel\"    # the kernel forwards when the router has died; \"drop\" where filters must hold\n\
         # workers = 1           # threads that forward, 1 to 16\n",
    );
    for link in state.links().filter(|link| !link.loopback) {
        let reason = left_out(link);
        let chosen = if devices.is_empty() { reason.is_none() } else { devices.contains(&link.name) };
        text.push('\n');
        port(&mut text, state, link, if chosen { None } else { Some(reason.unwrap_or("not named")) });
    }
    routes(&mut text, state);
    text.push_str(
        "\n# A route beside the kernel's:\n# [[route]]\n# to = \"10.9.0.0/16\"\n# via = \"10.2.0.254\"\n\
         \n# A filter:\n# [[filter]]\n# match = \"tcp port 25\"\n# action = \"drop\"\n",
    );
    text
}

/// Returns the reason why `init` skips a device that the user didn't name; `None` for a usable device.
fn left_out(link: &HostLink) -> Option<&'static str> {
    match link {
        HostLink { admin_up: false, .. } => Some("it is down"),
        HostLink { master: Some(_), .. } => Some("it belongs to a bridge, bond or VRF"),
        HostLink { mac: None, .. } => Some("it has no Ethernet address"),
        HostLink { name, .. } if name.starts_with("mr-out-") => Some("it is a TAP device of Millrace"),
        _ => None,
    }
}

/// Appends a port. If there is a reason `against` using its device, appends the port as a comment, with the
/// reason.
fn port(text: &mut String, state: &HostState, link: &HostLink, against: Option<&str>) {
    let kind = link.kind.as_deref().unwrap_or("hardware");
    let carrier = if link.usable() { "up" } else { "no carrier" };
    let queues = count(link.rx_queues, "receive queue");
    let _ = writeln!(text, "# {}: {kind}, MTU {}, {queues}, {carrier}", link.name, link.mtu);
    for address in state.addresses().filter(|address| address.ifindex == link.ifindex) {
        let _ = writeln!(text, "#   address {}/{}", address.address, address.prefix_length);
    }
    if let Some(reason) = against {
        let _ = writeln!(text, "# No port: {reason}.");
    }
    let mark = if against.is_some() { "# " } else { "" };
    // Quote the name as a JSON string, which is also a valid TOML string.
    let name = json!(link.name);
    let _ = writeln!(text, "{mark}[[port]]\n{mark}name = {name}\n{mark}device = {name}");
}

/// Appends the kernel's routes with a next hop, as comments.
fn routes(text: &mut String, state: &HostState) {
    let line = |route: &HostRoute| {
        let hops = route.next_hops.iter().map(|hop| {
            let device =
                state.links().find(|link| link.ifindex == hop.ifindex).map_or("?", |link| &link.name);
            hop.gateway.map_or(format!(" dev {device}"), |via| format!(" via {via} dev {device}"))
        });
        format!("#   {}{}", route.prefix, hops.collect::<String>())
    };
    // Table 255 holds the machine's own addresses.
    let all: Vec<HostRoute> =
        state.routes().filter(|route| route.table != 255 && !route.next_hops.is_empty()).collect();
    if all.is_empty() {
        return;
    }
    text.push_str("\n# Routes of the kernel, which the router follows:\n");
    all.iter().take(MOST_ROUTES).for_each(|route| text.push_str(&(line(route) + "\n")));
    if all.len() > MOST_ROUTES {
        let _ = writeln!(text, "#   and {} more", all.len() - MOST_ROUTES);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn force_overwrites_an_own_file_and_follows_no_link() {
        let folder = std::env::temp_dir().join(format!("millrace-cli-init-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (file, link) = (folder.join("router.toml"), folder.join("link.toml"));
        write(&file, "first", false).unwrap();
        assert!(write(&file, "second", false).is_err());
        write(&file, "new", true).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let refused = write(&link, "third", true).unwrap_err();
        assert!(refused.message.contains("symbolic link"), "{}", refused.message);
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        fs::remove_dir_all(&folder).unwrap();
    }
}
