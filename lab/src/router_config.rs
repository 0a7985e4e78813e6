//! Configuration of a Millrace router in a lab: the configuration from the lab file, with a port for each
//! link.

use std::fs;
use std::path::Path;

use toml::{Table, Value};

use crate::schema::Config;
use crate::topology::{Device, Node, Router};

/// Returns the tables of a router's configuration. A relative path of a file starts at `directory`.
pub(crate) fn read(config: &Config, directory: &Path) -> Result<Table, String> {
    match config {
        Config::Tables(tables) => Ok(tables.clone()),
        Config::Path(path) => {
            let path = directory.join(path);
            let text = fs::read_to_string(&path)
                .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            text.parse().map_err(|error: toml::de::Error| {
                format!("{}: {}", path.display(), error.message().trim_end())
            })
        }
    }
}

/// Returns the text of the configuration for a router.
///
/// If the configuration already has a `[[port]]` for a link's device, that port is kept and completed. If
/// on-death is not set, it becomes `kernel`: the kernel continues to forward when the router dies. Without
/// on-death, a router refuses bindings and filters, in the file and at run time.
pub(crate) fn render(node: &Node, router: &Router) -> Result<String, String> {
    let mut config = router.config.clone();
    let table = config.entry("router").or_insert_with(|| Value::Table(Table::new()));
    let Value::Table(table) = table else { return Err("`router` must be a table".to_owned()) };
    if let Some(mode) = router.mode {
        table.entry("mode").or_insert_with(|| Value::String(mode.to_owned()));
    }
    table.entry("on-death").or_insert_with(|| Value::String("kernel".to_owned()));
    let ports = config.entry("port").or_insert_with(|| Value::Array(Vec::new()));
    let Value::Array(ports) = ports else {
        return Err("`port` must be a list of tables, [[port]]".to_owned());
    };
    for device in &node.devices {
        let index = ports.iter().position(|port| is_port_of(port, device)).unwrap_or_else(|| {
            ports.push(Value::Table(Table::new()));
            ports.len() - 1
        });
        let Value::Table(port) = &mut ports[index] else {
            return Err("`port` must be a list of tables".to_owned());
        };
        complete(port, device)?;
    }
    toml::to_string(&config).map_err(|error| error.to_string())
}

fn is_port_of(port: &Value, device: &Device) -> bool {
    port.get("device").or_else(|| port.get("name")).and_then(Value::as_str) == Some(&device.name)
}

fn complete(port: &mut Table, device: &Device) -> Result<(), String> {
    let name = || Value::String(device.name.clone());
    port.entry("name").or_insert_with(name);
    port.entry("device").or_insert_with(name);
    if let Some(impairment) = &device.impairment {
        let table = Value::try_from(impairment).map_err(|error| error.to_string())?;
        port.insert("impair".to_owned(), table);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Impairment, NodeKind};

    fn node(devices: &[(&str, Option<Impairment>)]) -> Node {
        let device = |(name, impairment): &(&str, Option<Impairment>)| Device {
            name: (*name).to_owned(),
            addresses: Vec::new(),
            impairment: impairment.clone(),
        };
        Node {
            name: "r".to_owned(),
            kind: NodeKind::Millrace,
            devices: devices.iter().map(device).collect(),
            routes: Vec::new(),
            offloads: true,
            gro: None,
            router: None,
            daemons: Vec::new(),
            commands: Vec::new(),
        }
    }

    #[test]
    fn each_link_becomes_a_port_with_its_impairment() {
        let lossy = Impairment { loss: Some(0.25), seed: Some(7), ..Impairment::default() };
        let router = Router { mode: Some("poll"), ..Router::default() };
        let text = render(&node(&[("r1", None), ("r2", Some(lossy))]), &router).unwrap();
        let config: Table = text.parse().unwrap();
        let ports = config["port"].as_array().unwrap();
        assert_eq!(ports[0]["device"].as_str(), Some("r1"));
        assert_eq!(config["router"]["mode"].as_str(), Some("poll"));
        assert_eq!(config["router"]["on-death"].as_str(), Some("kernel"));
        assert!(ports[0].get("impair").is_none());
        assert_eq!(ports[1]["impair"]["loss"].as_float(), Some(0.25));
        assert_eq!(ports[1]["impair"]["seed"].as_integer(), Some(7));
    }

    #[test]
    fn a_given_port_is_kept_and_the_rest_of_the_configuration_too() {
        let given = "[[port]]\nname = \"lan\"\ndevice = \"r1\"\n[router]\nmode = \"interrupt\"\non-death = \"drop\"\n\
                     [[instance]]\nplugin = \"statistics\"\nname = \"s\"\n";
        let router = Router { mode: Some("poll"), config: given.parse().unwrap(), arguments: Vec::new() };
        let config: Table = render(&node(&[("r1", None), ("r2", None)]), &router).unwrap().parse().unwrap();
        let ports = config["port"].as_array().unwrap();
        assert_eq!(ports.len(), 2);
        assert_eq!(
            (ports[0]["name"].as_str(), config["router"]["mode"].as_str()),
            (Some("lan"), Some("interrupt"))
        );
        assert_eq!(config["router"]["on-death"].as_str(), Some("drop"));
        assert_eq!(config["instance"][0]["name"].as_str(), Some("s"));
    }
}
