//! Resources of gates and bindings.

use millrace_controller::operation::{
    Bind, CreateGate, ListBindings, ListGates, RemoveGate, SetGateTable, Unbind,
};
use millrace_controller::view::{BindingView, GateView};
use millrace_controller::{NewBinding, PageQuery};

use crate::endpoint::{Endpoint, Resource};
use crate::resources;
use crate::resources::{create, run, show, trial};

/// Returns the resources of gates and bindings.
pub(super) fn gates() -> Vec<Resource> {
    vec![
        Resource::new("/gates")
            .on(Endpoint::get::<ListGates>("gates and their bindings"), show::<ListGates>)
            .on(
                Endpoint::create::<CreateGate>("creates a gate, the last at its position")
                    .body::<CreateGate>(),
                create::<CreateGate>,
            ),
        Resource::new("/gates/{name}")
            .on(
                Endpoint::get::<ListGates>("a gate").answers::<GateView>().tagged(),
                resources::gates::find_gate,
            )
            .on(
                Endpoint::patch::<SetGateTable>("changes the lookup algorithm of a gate")
                    .body::<resources::gates::GateSettings>()
                    .tagged(),
                resources::gates::set_gate,
            )
            .on(
                Endpoint::delete::<RemoveGate>("removes an unused gate").tagged(),
                resources::gates::remove_gate,
            ),
        Resource::new("/bindings")
            .on(
                Endpoint::get::<ListBindings>("bindings")
                    .answers::<Vec<BindingView>>()
                    .arguments::<PageQuery>()
                    .paged(),
                resources::gates::bindings,
            )
            .on(Endpoint::create::<Bind>("binds an instance").body::<NewBinding>().tried(), trial::bind)
            .on(Endpoint::delete::<Unbind>("removes a binding").body::<Unbind>(), run::<Unbind>),
    ]
}
