//! Handlers of plugins and their instances.

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use millrace_controller::view::{InstanceView, PluginDetailView};
use millrace_controller::{ControlError, NewPlugin, Upgrade};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Answer, Created, named};
use crate::http::extract::{Body, Name, Names};
use crate::http::problem::Problem;
use crate::http::tag::{Condition, WithTag};
use crate::principal::Principal;
use crate::served::Served;

fn instance(served: &Served, name: &str) -> Result<InstanceView, Problem> {
    named("instance", served.control.instances()?, |one| &one.name, name)
}

fn plugin(served: &Served, name: &str) -> Result<PluginDetailView, Problem> {
    Ok(served.control.plugin(name)?)
}

pub(crate) async fn find_plugin(
    State(served): State<Served>,
    Name(name): Name,
) -> Result<WithTag<PluginDetailView>, Problem> {
    plugin(&served, &name).map(WithTag)
}

pub(crate) async fn load_plugin(
    State(served): State<Served>,
    Body(new): Body<NewPlugin>,
) -> Created<impl Serialize> {
    Ok((StatusCode::CREATED, Json(served.control.load_plugin(&new).await?)))
}

pub(crate) async fn unload_plugin(
    State(served): State<Served>,
    Name(name): Name,
    condition: Condition,
) -> Answer<impl Serialize> {
    condition.check(|| plugin(&served, &name))?;
    Ok(Json(served.control.unload_plugin(&name)?))
}

pub(crate) async fn upgrade_plugin(
    State(served): State<Served>,
    Name(name): Name,
    condition: Condition,
    Body(upgrade): Body<Upgrade>,
) -> Answer<impl Serialize> {
    condition.check(|| plugin(&served, &name))?;
    Ok(Json(served.control.upgrade_plugin(&name, &upgrade).await?))
}

pub(crate) async fn roll_back_plugin(
    State(served): State<Served>,
    Name(name): Name,
    condition: Condition,
) -> Answer<impl Serialize> {
    condition.check(|| plugin(&served, &name))?;
    Ok(Json(served.control.roll_back_plugin(&name)?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewInstance {
    plugin: String,
    name: String,
    #[serde(default)]
    settings: Map<String, Value>,
}

pub(crate) async fn create_instance(
    State(served): State<Served>,
    Extension(principal): Extension<Principal>,
    Body(new): Body<NewInstance>,
) -> Result<Response, Problem> {
    let NewInstance { plugin, name, settings } = new;
    let instance = served.control.create_instance(&plugin, &name, &settings, principal.least())?;
    Ok((StatusCode::CREATED, WithTag(instance)).into_response())
}

pub(crate) async fn free_instance(
    State(served): State<Served>,
    Extension(principal): Extension<Principal>,
    Name(name): Name,
    condition: Condition,
) -> Answer<impl Serialize> {
    condition.check(|| instance(&served, &name))?;
    Ok(Json(served.control.free_instance(&name, principal.least())?))
}

pub(crate) async fn release_instance(
    State(served): State<Served>,
    Extension(principal): Extension<Principal>,
    Name(name): Name,
) -> Answer<impl Serialize> {
    Ok(Json(served.control.release_instance(&name, principal.least())?))
}

pub(crate) async fn instance_maps(State(served): State<Served>, Name(name): Name) -> Answer<impl Serialize> {
    Ok(Json(served.control.instance_maps(&name)?))
}

pub(crate) async fn instance_map(
    State(served): State<Served>,
    Names([instance, map]): Names,
) -> Answer<impl Serialize> {
    Ok(Json(served.control.instance_map(&instance, &map)?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Message {
    message: String,
    #[serde(default)]
    arguments: Map<String, Value>,
    /// Whether the message is for the host companion.
    #[serde(default)]
    companion: bool,
}

pub(crate) async fn control(
    State(served): State<Served>,
    Extension(principal): Extension<Principal>,
    Name(name): Name,
    Body(message): Body<Message>,
) -> Answer<Value> {
    let Message { message, arguments, companion } = message;
    let role = principal.least();
    Ok(Json(match companion {
        true => served.control.control_host_companion(&name, &message, &arguments, role).await?,
        false => served.control.control(&name, &message, &arguments, role)?,
    }))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InstanceChange {
    /// New name of the instance.
    name: Option<String>,
    /// Settings to change; `null` removes a setting.
    settings: Option<Map<String, Value>>,
}

pub(crate) async fn change_instance(
    State(served): State<Served>,
    Extension(principal): Extension<Principal>,
    Name(name): Name,
    condition: Condition,
    Body(change): Body<InstanceChange>,
) -> Result<WithTag<InstanceView>, Problem> {
    condition.check(|| instance(&served, &name))?;
    let (control, role) = (&served.control, principal.least());
    let changed = match (change.settings, change.name) {
        (Some(settings), None) => control.set_instance(&name, &settings, role)?,
        (None, Some(to)) => control.rename_instance(&name, &to, role)?,
        _ => {
            let problem = "give either `settings` or `name`: a request changes one of them".to_owned();
            return Err(ControlError::Invalid(problem).into());
        }
    };
    Ok(WithTag(changed))
}
