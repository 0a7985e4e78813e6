//! Changes of a port's addresses and settings while it forwards.

use ipnet::IpNet;
use millrace_config::{Change, Config, InputWeight, OutputWeight, Port, ReversePath, Text};
use millrace_pipeline::PortCommand;
use serde::{Deserialize, Deserializer};

use super::single::checked;
use crate::ControlError;
use crate::model::{Model, reverse_path};
use crate::router::Inner;

/// Port settings that can be changed individually; `null` resets to the default.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct PortSettings {
    #[serde(default, deserialize_with = "said")]
    address: Option<Vec<IpNet>>,
    #[serde(default, deserialize_with = "said")]
    input_weight: Option<InputWeight>,
    #[serde(default, deserialize_with = "said")]
    output_weight: Option<OutputWeight>,
    #[serde(default, deserialize_with = "said")]
    reverse_path: Option<ReversePath>,
}

/// Deserializes a setting that the request contains; `null` yields the default of `T`.
fn said<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de> + Default,
    D: Deserializer<'de>,
{
    Option::deserialize(deserializer).map(|value: Option<T>| Some(value.unwrap_or_default()))
}

/// Plans a change of a port's settings.
pub(crate) fn plan_port(model: &Model, name: &str, settings: PortSettings) -> Result<Change, ControlError> {
    let plan = model.port(name)?;
    let PortSettings { address, input_weight, output_weight, reverse_path } = settings;
    if address.is_some() && plan.is_kernel() {
        return Err(ControlError::invalid(format!(
            "port {name:?}: the kernel manages the addresses of this device: set them with `ip address`"
        )));
    }
    let from = Port { scheduler: None, ..plan.config.clone() };
    let address = address.map(|nets| nets.into_iter().map(Text::of).collect());
    let to = Port {
        address: address.unwrap_or_else(|| from.address.clone()),
        input_weight: input_weight.unwrap_or(from.input_weight),
        output_weight: output_weight.unwrap_or(from.output_weight),
        reverse_path: reverse_path.unwrap_or(from.reverse_path),
        ..from.clone()
    };
    let others = model.ports.iter().filter(|other| other.id != plan.id).map(|other| other.config.clone());
    let port = others.chain([to.clone()]).map(|port| Port { scheduler: None, ..port }).collect();
    checked(Config { router: model.router.clone(), port, ..Config::default() })?;
    Ok(Change::SetPort { from: Box::new(from), to: Box::new(to) })
}

impl Inner {
    /// Gives a port the reverse-path check, weights and addresses of `to`.
    pub fn set_port(&mut self, to: &millrace_config::Port) -> Result<(), ControlError> {
        let id = self.model.port(&to.name)?.id;
        let Some(plan) = self.model.ports.iter_mut().find(|plan| plan.id == id) else { return Ok(()) };
        let (InputWeight(input), OutputWeight(output)) = (to.input_weight, to.output_weight);
        plan.config.reverse_path = to.reverse_path;
        plan.config.input_weight = to.input_weight;
        plan.config.output_weight = to.output_weight;
        plan.settings.reverse_path = reverse_path(to.reverse_path);
        plan.settings.input_weight = input;
        plan.settings.output_weight = output;
        let readdressed = plan.config.address != to.address;
        if readdressed {
            plan.config.address = to.address.clone();
            plan.settings.addresses = to.address.iter().map(|net| *net.value()).collect();
        }
        let settings = plan.settings.clone();
        self.workers.tell(|| PortCommand::Set(id, settings.clone()))?;
        if readdressed {
            let changed = readdress(&mut self.model);
            self.tell_own(&changed)?;
        }
        self.workers.barrier()
    }
}

/// Updates the connected routes after a change of port addresses. Returns the changed prefixes.
fn readdress(model: &mut Model) -> Vec<IpNet> {
    let before = model.own_routes.take_connected();
    for plan in model.ports.iter().filter(|plan| !plan.is_kernel()) {
        for net in &plan.settings.addresses {
            model.own_routes.add_address(plan.id, *net);
        }
    }
    let after = model.own_routes.connected();
    let mut changed: Vec<_> =
        before.iter().filter(|(net, route)| after.get(net) != Some(route)).map(|(net, _)| *net).collect();
    changed.extend(after.keys().filter(|net| !before.contains_key(net)));
    changed
}
