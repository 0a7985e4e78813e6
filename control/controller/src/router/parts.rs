//! Groups of parts of a running router, borrowed together for functions of components.

use super::Inner;
use crate::filters::gates::Gates;
use crate::plugins::quarantine::Quarantine;
use crate::routes::configured::ConfiguredRoutes;

impl Inner {
    pub fn gates(&mut self) -> Gates<'_> {
        Gates { model: &mut self.model, tables: &mut self.tables, workers: &mut self.workers }
    }

    pub fn quarantine(&mut self) -> Quarantine<'_> {
        Quarantine { model: &mut self.model, workers: &mut self.workers }
    }

    pub fn configured_routes(&mut self) -> ConfiguredRoutes<'_> {
        let Self { model, routes, kernel, devices, observation, .. } = self;
        ConfiguredRoutes { model, routes, kernel, devices, events: &observation.events }
    }
}
