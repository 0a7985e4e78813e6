//! Plugins and their instances.

use axum::routing::{delete, get, patch, post, put};
use millrace_controller::Role::{Admin, Operator, Viewer};
use millrace_controller::view::{
    HeldView, InstanceView, MapView, PluginDetailView, PluginView, ReleaseView, UpgradeView,
};
use millrace_controller::{NewPlugin, PageQuery, Router, Upgrade};
use serde_json::Value;

use crate::effect::Effect;
use crate::operation::{Operation, Resource};
use crate::resources::instances;
use crate::resources::{find, read};
use crate::served::paging::pages;

/// Plugins.
pub(super) fn plugins() -> Vec<Resource> {
    vec![
        Resource::new("/plugins")
            .on(
                Operation::get::<Vec<PluginView>>(Viewer, "plugins that instances can be made of"),
                read(Router::plugins),
            )
            .on(
                Operation::create::<PluginView>(Admin, "loads the one of a file of the router's machine")
                    .effect(Effect::Code)
                    .body::<NewPlugin>(),
                post(instances::load_plugin),
            ),
        Resource::new("/plugins/{name}")
            .on(
                Operation::get::<PluginDetailView>(Viewer, "all that a plugin says of itself").tagged(),
                get(instances::find_plugin),
            )
            .on(
                Operation::put::<UpgradeView>(Admin, "puts another version in its place")
                    .effect(Effect::Code)
                    .body::<Upgrade>()
                    .tagged(),
                put(instances::upgrade_plugin),
            )
            .on(
                Operation::delete::<PluginView>(Admin, "forgets one of which there are no instances")
                    .effect(Effect::Code)
                    .tagged(),
                delete(instances::unload_plugin),
            ),
        Resource::new("/plugins/{name}/rollback").on(
            Operation::post::<UpgradeView>(Admin, "puts the version back that was there before")
                .effect(Effect::Code)
                .tagged(),
            post(instances::roll_back_plugin),
        ),
    ]
}

/// Instances.
pub(super) fn instances() -> Vec<Resource> {
    vec![
        Resource::new("/instances")
            .on(
                Operation::get::<Vec<InstanceView>>(Viewer, "plugin instances")
                    .arguments::<PageQuery>()
                    .paged(),
                pages(Router::instances, |one| one.name.clone()),
            )
            .on(
                Operation::create::<InstanceView>(Operator, "creates one").body::<instances::NewInstance>(),
                post(instances::create_instance),
            ),
        Resource::new("/instances/{name}")
            .on(
                Operation::get::<InstanceView>(Viewer, "one").tagged(),
                find("instance", Router::instances, |one| &one.name),
            )
            .on(
                Operation::patch::<InstanceView>(Operator, "changes some settings, or gives it another name")
                    .body::<instances::InstanceChange>()
                    .tagged(),
                patch(instances::change_instance),
            )
            .on(
                Operation::delete::<InstanceView>(Operator, "frees it, after its bindings").tagged(),
                delete(instances::free_instance),
            ),
        Resource::new("/instances/{name}/release").on(
            Operation::post::<ReleaseView>(Operator, "lets it out of quarantine"),
            post(instances::release_instance),
        ),
        Resource::new("/quarantine").on(
            Operation::get::<Vec<HeldView>>(
                Viewer,
                "instances that a call of theirs has ended the router for",
            ),
            read(Router::quarantine),
        ),
        Resource::new("/instances/{name}/maps").on(
            Operation::get::<Vec<MapView>>(Viewer, "the maps that the instance writes"),
            get(instances::instance_maps),
        ),
        Resource::new("/instances/{name}/maps/{map}").on(
            Operation::get::<MapView>(Viewer, "one of them, with up to 4,096 of its entries"),
            get(instances::instance_map),
        ),
        Resource::new("/instances/{name}/control").on(
            Operation::post::<Value>(Operator, "sends the instance a message, or its slow half")
                .body::<instances::Message>(),
            post(instances::control),
        ),
    ]
}
