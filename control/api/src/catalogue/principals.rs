//! Resources of principals.

use millrace_controller::PrincipalSettings;
use millrace_controller::operation::{
    AddPrincipal, GetPromises, ListPrincipals, RemovePrincipal, SetPrincipal,
};
use millrace_controller::view::{PrincipalView, PromisesView};
use serde_json::{Map, Value};

use crate::endpoint::{Endpoint, Resource};
use crate::http::naming::Settings;
use crate::resources::{admission, principals, show};

/// Returns the resources of principals and of the allowances of their owners.
pub(super) fn principals() -> Vec<Resource> {
    let [all, one] = admission::allowances();
    vec![
        all,
        one,
        Resource::new("/principals")
            .on(
                Endpoint::get::<ListPrincipals>("principals, with shares, limits and usage"),
                show::<ListPrincipals>,
            )
            .on(
                Endpoint::create::<AddPrincipal>("adds a principal")
                    .body::<Settings<PrincipalSettings>>()
                    .tried(),
                principals::add,
            ),
        Resource::new("/promises").on(
            Endpoint::get_as::<GetPromises, PromisesView>(
                "shares promised to principals beside what the workers delivered; each second as a stream, if accepted",
            )
            .streams(),
            principals::promises,
        ),
        Resource::new("/principals/{name}")
            .on(
                Endpoint::get::<ListPrincipals>("a principal").answers::<PrincipalView>().tagged(),
                principals::find,
            )
            .on(
                Endpoint::patch::<SetPrincipal>(
                    "changes shares and limits of a principal; null restores the default",
                )
                .body::<Settings<Map<String, Value>>>()
                .tagged()
                .tried(),
                principals::set,
            )
            .on(
                Endpoint::delete::<RemovePrincipal>(
                    "removes a principal; its processes continue without limits",
                )
                .tagged(),
                principals::remove,
            ),
    ]
}
