//! Ports that get other addresses or settings while they forward.

use millrace_config::InputWeight;
use millrace_pipeline::Command;

use crate::ControlError;
use crate::model::reverse_path;
use crate::router::Inner;

impl Inner {
    /// Gives a port other addresses, another weight or another check of the way back to sources.
    pub fn set_port(&mut self, to: &millrace_config::Port) -> Result<(), ControlError> {
        let id = self.model.port(&to.name)?.id;
        let Some(plan) = self.model.ports.iter_mut().find(|plan| plan.id == id) else { return Ok(()) };
        let InputWeight(weight) = to.input_weight;
        plan.config.reverse_path = to.reverse_path;
        plan.config.input_weight = to.input_weight;
        plan.settings.reverse_path = reverse_path(to.reverse_path);
        plan.settings.input_weight = weight;
        let readdressed = plan.config.address != to.address;
        if readdressed {
            plan.config.address = to.address.clone();
            plan.settings.addresses = to.address.iter().map(|net| *net.value()).collect();
        }
        let settings = plan.settings.clone();
        self.workers.tell(|| Command::SetPort(id, settings.clone()))?;
        if readdressed {
            self.readdress()?;
        }
        self.barrier()
    }

    /// Changes what routes follow from the addresses of ports.
    fn readdress(&mut self) -> Result<(), ControlError> {
        let before = self.model.own_routes.take_connected();
        for plan in self.model.ports.iter().filter(|plan| !plan.is_kernel()) {
            for net in &plan.settings.addresses {
                self.model.own_routes.add_address(plan.id, *net);
            }
        }
        let after = self.model.own_routes.connected();
        let mut changed: Vec<_> =
            before.iter().filter(|(net, route)| after.get(net) != Some(route)).map(|(net, _)| *net).collect();
        changed.extend(after.keys().filter(|net| !before.contains_key(net)));
        self.tell_own(&changed)
    }
}
