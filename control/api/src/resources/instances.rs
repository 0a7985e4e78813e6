//! Handlers of plugins and their instances.

use axum::Json;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use millrace_controller::operation::{
    ControlHostCompanion, ControlInstance, CreateInstance, FreeInstance, GetPlugin, ListInstances,
    MoveInstance, RenameInstance, RollBackPlugin, SetInstance, Trial, UnloadPlugin, UpgradePlugin,
};
use millrace_controller::view::{InstanceView, PluginDetailView};
use millrace_controller::{ControlError, PageQuery, Upgrade};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::trial::tried;
use super::{Answer, named};
use crate::endpoint::TrialQuery;
use crate::http::extract::{Arguments, Body, InPath};
use crate::http::naming::Settings;
use crate::http::problem::Problem;
use crate::http::tag::{Condition, WithTag};
use crate::served::Session;
use crate::served::paging::paged;

async fn instance(session: &Session, name: &str) -> Result<InstanceView, Problem> {
    named("instance", session.execute(ListInstances).await?, |one| &one.name, name)
}

async fn plugin(session: &Session, name: &str) -> Result<PluginDetailView, Problem> {
    session.execute(GetPlugin { name: name.to_owned() }).await
}

pub(crate) async fn find_plugin(
    session: Session,
    InPath(name): InPath<String>,
) -> Result<WithTag<PluginDetailView>, Problem> {
    plugin(&session, &name).await.map(WithTag)
}

pub(crate) async fn unload_plugin(
    session: Session,
    InPath(name): InPath<String>,
    condition: Condition,
) -> Answer<impl Serialize> {
    condition.check(plugin(&session, &name)).await?;
    session.execute(UnloadPlugin { name }).await.map(Json)
}

pub(crate) async fn upgrade_plugin(
    session: Session,
    InPath(name): InPath<String>,
    condition: Condition,
    Body(upgrade): Body<Upgrade>,
) -> Answer<impl Serialize> {
    condition.check(plugin(&session, &name)).await?;
    session.execute(UpgradePlugin { name, upgrade }).await.map(Json)
}

pub(crate) async fn roll_back_plugin(
    session: Session,
    InPath(name): InPath<String>,
    condition: Condition,
) -> Answer<impl Serialize> {
    condition.check(plugin(&session, &name)).await?;
    session.execute(RollBackPlugin { name }).await.map(Json)
}

/// Returns the instances, ordered by name if a page is requested.
pub(crate) async fn list_instances(
    session: Session,
    uri: Uri,
    Arguments(query): Arguments<PageQuery>,
) -> Response {
    session
        .execute_long(ListInstances, move |instances| {
            Ok(paged(&uri, query.of(instances, |one| one.name.clone())?))
        })
        .await
}

pub(crate) async fn find_instance(
    session: Session,
    InPath(name): InPath<String>,
) -> Result<WithTag<InstanceView>, Problem> {
    instance(&session, &name).await.map(WithTag)
}

pub(crate) async fn create_instance(
    session: Session,
    Arguments(query): Arguments<TrialQuery>,
    Body(new): Body<CreateInstance>,
) -> Result<Response, Problem> {
    if query.dry_run {
        return tried(&session, Trial::CreateInstance(new)).await;
    }
    let instance = session.execute(new).await?;
    Ok((StatusCode::CREATED, WithTag(instance)).into_response())
}

pub(crate) async fn move_instance(
    session: Session,
    InPath(name): InPath<String>,
    Arguments(query): Arguments<TrialQuery>,
    Settings(changes): Settings<Map<String, Value>>,
) -> Result<Response, Problem> {
    let moved = MoveInstance { name, changes };
    match query.dry_run {
        true => tried(&session, Trial::MoveInstance(moved)).await,
        false => session.execute(moved).await.map(|view| Json(view).into_response()),
    }
}

pub(crate) async fn free_instance(
    session: Session,
    InPath(name): InPath<String>,
    condition: Condition,
) -> Answer<impl Serialize> {
    condition.check(instance(&session, &name)).await?;
    session.execute(FreeInstance { name }).await.map(Json)
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
    session: Session,
    InPath(instance): InPath<String>,
    Body(message): Body<Message>,
) -> Answer<Value> {
    let Message { message, arguments, companion } = message;
    let reply = match companion {
        true => session.execute(ControlHostCompanion { instance, message, arguments }).await,
        false => session.execute(ControlInstance { instance, message, arguments }).await,
    };
    reply.map(Json)
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
    session: Session,
    InPath(name): InPath<String>,
    condition: Condition,
    Body(change): Body<InstanceChange>,
) -> Result<WithTag<InstanceView>, Problem> {
    condition.check(instance(&session, &name)).await?;
    let changed = match (change.settings, change.name) {
        (Some(settings), None) => session.execute(SetInstance { name, settings }).await?,
        (None, Some(to)) => {
            session.execute(RenameInstance { name, to: to.clone() }).await?;
            // The bindings have the new name now, and so has the tag.
            instance(&session, &to).await?
        }
        _ => {
            let problem = "give either `settings` or `name`: a request changes one of them".to_owned();
            return Err(ControlError::invalid(problem).into());
        }
    };
    Ok(WithTag(changed))
}
