//! Resources of plugins and their instances.

use millrace_controller::operation::{
    ControlInstance, CreateInstance, FreeInstance, GetInstanceMap, GetPlugin, ListInstanceMaps,
    ListInstances, ListPlugins, ListQuarantine, LoadPlugin, MoveInstance, ReleaseInstance, RollBackPlugin,
    SetInstance, UnloadPlugin, UpgradePlugin,
};
use millrace_controller::view::InstanceView;
use millrace_controller::{NewPlugin, PageQuery, Upgrade};
use serde_json::{Map, Value};

use crate::endpoint::{Endpoint, Resource};
use crate::http::naming::Settings;
use crate::resources::{at, create, instances, show};

/// Returns the resources of plugins.
pub(super) fn plugins() -> Vec<Resource> {
    vec![
        Resource::new("/plugins").on(Endpoint::get::<ListPlugins>("plugins"), show::<ListPlugins>).on(
            Endpoint::create::<LoadPlugin>("loads a plugin from a file on the router's machine")
                .body::<NewPlugin>(),
            create::<LoadPlugin>,
        ),
        Resource::new("/plugins/{name}")
            .on(
                Endpoint::get::<GetPlugin>("a plugin: settings, messages, capabilities and counters")
                    .tagged(),
                instances::find_plugin,
            )
            .on(
                Endpoint::put::<UpgradePlugin>("replaces a plugin by another version")
                    .body::<Upgrade>()
                    .tagged(),
                instances::upgrade_plugin,
            )
            .on(
                Endpoint::delete::<UnloadPlugin>("unloads a plugin without instances").tagged(),
                instances::unload_plugin,
            ),
        Resource::new("/plugins/{name}/rollback").on(
            Endpoint::post::<RollBackPlugin>("restores the previous version of a plugin").tagged(),
            instances::roll_back_plugin,
        ),
    ]
}

/// Returns the resources of instances.
pub(super) fn instances() -> Vec<Resource> {
    vec![
        Resource::new("/instances")
            .on(
                Endpoint::get::<ListInstances>("plugin instances").arguments::<PageQuery>().paged(),
                instances::list_instances,
            )
            .on(
                Endpoint::create::<CreateInstance>("creates an instance").body::<CreateInstance>().tried(),
                instances::create_instance,
            ),
        Resource::new("/instances/{name}")
            .on(
                Endpoint::get::<ListInstances>("an instance").answers::<InstanceView>().tagged(),
                instances::find_instance,
            )
            .on(
                Endpoint::patch::<SetInstance>("changes settings of an instance, or renames it")
                    .body::<instances::InstanceChange>()
                    .tagged(),
                instances::change_instance,
            )
            .on(
                Endpoint::delete::<FreeInstance>("removes an instance and its bindings").tagged(),
                instances::free_instance,
            ),
        Resource::new("/instances/{name}/move").on(
            Endpoint::post::<MoveInstance>(
                "moves an instance to another level, or changes its declared load; null restores a default",
            )
            .body::<Settings<Map<String, Value>>>()
            .tried(),
            instances::move_instance,
        ),
        Resource::new("/instances/{name}/release").on(
            Endpoint::post::<ReleaseInstance>("releases an instance from quarantine"),
            at::<ReleaseInstance>,
        ),
        Resource::new("/quarantine").on(
            Endpoint::get::<ListQuarantine>("instances that stay in quarantine at the next start"),
            show::<ListQuarantine>,
        ),
        Resource::new("/instances/{name}/maps")
            .on(Endpoint::get::<ListInstanceMaps>("shared maps of an instance"), at::<ListInstanceMaps>),
        Resource::new("/instances/{name}/maps/{map}").on(
            Endpoint::get::<GetInstanceMap>("a shared map, with up to 4,096 entries"),
            at::<GetInstanceMap>,
        ),
        Resource::new("/instances/{name}/control").on(
            Endpoint::post::<ControlInstance>(
                "sends a control message to an instance or to its host companion",
            )
            .body::<instances::Message>(),
            instances::control,
        ),
    ]
}
