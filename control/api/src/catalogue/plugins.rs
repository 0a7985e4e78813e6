//! Resources of plugins and their instances.

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

/// Returns the resources of plugins.
pub(super) fn plugins() -> Vec<Resource> {
    vec![
        Resource::new("/plugins")
            .on(Operation::get::<Vec<PluginView>>(Viewer, "plugins"), read(Router::plugins))
            .on(
                Operation::create::<PluginView>(Admin, "loads a plugin from a file on the router's machine")
                    .effect(Effect::Code)
                    .body::<NewPlugin>(),
                post(instances::load_plugin),
            ),
        Resource::new("/plugins/{name}")
            .on(
                Operation::get::<PluginDetailView>(
                    Viewer,
                    "a plugin: settings, messages, capabilities and counters",
                )
                .tagged(),
                get(instances::find_plugin),
            )
            .on(
                Operation::put::<UpgradeView>(Admin, "replaces a plugin by another version")
                    .effect(Effect::Code)
                    .body::<Upgrade>()
                    .tagged(),
                put(instances::upgrade_plugin),
            )
            .on(
                Operation::delete::<PluginView>(Admin, "unloads a plugin without instances")
                    .effect(Effect::Code)
                    .tagged(),
                delete(instances::unload_plugin),
            ),
        Resource::new("/plugins/{name}/rollback").on(
            Operation::post::<UpgradeView>(Admin, "restores the previous version of a plugin")
                .effect(Effect::Code)
                .tagged(),
            post(instances::roll_back_plugin),
        ),
    ]
}

/// Returns the resources of instances.
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
                Operation::create::<InstanceView>(Operator, "creates an instance")
                    .body::<instances::NewInstance>(),
                post(instances::create_instance),
            ),
        Resource::new("/instances/{name}")
            .on(
                Operation::get::<InstanceView>(Viewer, "an instance").tagged(),
                find("instance", Router::instances, |one| &one.name),
            )
            .on(
                Operation::patch::<InstanceView>(Operator, "changes settings of an instance, or renames it")
                    .body::<instances::InstanceChange>()
                    .tagged(),
                patch(instances::change_instance),
            )
            .on(
                Operation::delete::<InstanceView>(Operator, "removes an instance and its bindings").tagged(),
                delete(instances::free_instance),
            ),
        Resource::new("/instances/{name}/release").on(
            Operation::post::<ReleaseView>(Operator, "releases an instance from quarantine"),
            post(instances::release_instance),
        ),
        Resource::new("/quarantine").on(
            Operation::get::<Vec<HeldView>>(Viewer, "instances that stay in quarantine at the next start"),
            read(Router::quarantine),
        ),
        Resource::new("/instances/{name}/maps").on(
            Operation::get::<Vec<MapView>>(Viewer, "shared maps of an instance"),
            get(instances::instance_maps),
        ),
        Resource::new("/instances/{name}/maps/{map}").on(
            Operation::get::<MapView>(Viewer, "a shared map, with up to 4,096 entries"),
            get(instances::instance_map),
        ),
        Resource::new("/instances/{name}/control").on(
            Operation::post::<Value>(
                Operator,
                "sends a control message to an instance or to its host companion",
            )
            .body::<instances::Message>(),
            post(instances::control),
        ),
    ]
}
