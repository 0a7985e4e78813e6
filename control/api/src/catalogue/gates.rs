//! Resources of gates and bindings.

use axum::routing::{delete, get, patch, post};
use millrace_controller::Role::{Operator, Viewer};
use millrace_controller::view::{BindingView, GateView};
use millrace_controller::{NewBinding, PageQuery, Router};

use crate::operation::{Operation, Resource};
use crate::resources;
use crate::resources::{find, read};

/// Returns the resources of gates and bindings.
pub(super) fn gates() -> Vec<Resource> {
    vec![
        Resource::new("/gates")
            .on(Operation::get::<Vec<GateView>>(Viewer, "gates and their bindings"), read(Router::gates))
            .on(
                Operation::create::<GateView>(Operator, "creates a gate, the last at its position")
                    .body::<resources::NewGate>(),
                post(resources::create_gate),
            ),
        Resource::new("/gates/{name}")
            .on(
                Operation::get::<GateView>(Viewer, "a gate").tagged(),
                find("gate", Router::gates, |gate| &gate.name),
            )
            .on(
                Operation::patch::<GateView>(Operator, "changes the lookup algorithm of a gate")
                    .body::<resources::GateSettings>()
                    .tagged(),
                patch(resources::set_gate),
            )
            .on(
                Operation::delete::<GateView>(Operator, "removes an unused gate").tagged(),
                delete(resources::remove_gate),
            ),
        Resource::new("/bindings")
            .on(
                Operation::get::<Vec<BindingView>>(Viewer, "bindings").arguments::<PageQuery>().paged(),
                get(resources::bindings),
            )
            .on(
                Operation::create::<BindingView>(Operator, "binds an instance").body::<NewBinding>(),
                post(resources::bind),
            )
            .on(
                Operation::delete::<BindingView>(Operator, "removes a binding")
                    .body::<resources::OldBinding>(),
                delete(resources::unbind),
            ),
    ]
}
