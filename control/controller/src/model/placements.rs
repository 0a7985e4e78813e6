//! Configured placements of flows and instances.

use millrace_config::{MOST_PLACED_COMPARISONS, MOST_PLACEMENTS, Placeable, PlacementLevel, Text};
use millrace_pipeline::Level;
use millrace_units::count;

use crate::ControlError;
use crate::model::Model;

/// Configured level of the flows of a filter, or of the packets of an instance.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Placed {
    pub what: Placeable,
    pub level: Level,
}

impl Placed {
    /// Reads a placement from the configuration.
    pub fn of(place: &millrace_config::Placement) -> Self {
        let level = match place.level {
            PlacementLevel::Offload => Level::Offload,
            PlacementLevel::Worker => Level::Worker,
        };
        Self { what: place.flow.value().clone(), level }
    }

    /// Returns the placement in the form of the configuration.
    pub fn written(&self) -> millrace_config::Placement {
        let level = match self.level {
            Level::Offload => PlacementLevel::Offload,
            Level::Worker => PlacementLevel::Worker,
        };
        millrace_config::Placement { flow: Text::of(self.what.clone()), level }
    }
}

impl Model {
    /// Returns the configured level of an instance's packets; `None` without a placement.
    pub(crate) fn placed_instance(&self, instance: &str) -> Option<Level> {
        let is_it = |placed: &&Placed| matches!(&placed.what, Placeable::Instance(name) if name == instance);
        self.placements.iter().find(is_it).map(|placed| placed.level)
    }

    /// Adds a placement. Refuses a placement above the maximum number of placements, or above the maximum
    /// number of comparisons that all placements need for a flow.
    pub(crate) fn add_placement(&mut self, placed: Placed) -> Result<(), ControlError> {
        if self.placements.len() >= MOST_PLACEMENTS {
            return Err(ControlError::conflict(format!(
                "the maximum of {MOST_PLACEMENTS} placements is reached: remove one with `place FLOW auto`"
            )));
        }
        let own = placed.what.comparisons();
        let others: usize = self.placements.iter().map(|placed| placed.what.comparisons()).sum();
        if own + others > MOST_PLACED_COMPARISONS {
            return Err(ControlError::conflict(format!(
                "placement {:?} takes {} for a flow, the other placements take {others}, and the limit is \
                 {MOST_PLACED_COMPARISONS}: write wider prefixes or ranges, or fewer `not`",
                placed.what.to_string(),
                count(own, "comparison")
            )));
        }
        self.placements.push(placed);
        Ok(())
    }
}

pub(crate) fn forget_instance(placements: &mut Vec<Placed>, instance: &str) {
    let is_it = |placed: &Placed| matches!(&placed.what, Placeable::Instance(name) if name == instance);
    placements.retain(|placed| !is_it(placed));
}

pub(crate) fn rename_instance(placements: &mut [Placed], from: &str, to: &str) {
    for placed in placements {
        if let Placeable::Instance(name) = &mut placed.what
            && name == from
        {
            to.clone_into(name);
        }
    }
}
