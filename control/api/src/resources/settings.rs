//! Handlers of router-wide settings and counters.

use axum::Json;
use millrace_controller::RouterSettings;
use millrace_controller::operation::{ClearCounters, GetSettings, SetSettings};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::Answer;
use crate::http::naming::Settings;
use crate::http::problem::Problem;
use crate::http::tag::{Condition, WithTag};
use crate::served::Session;

type TaggedSettings = Result<WithTag<Settings<RouterSettings>>, Problem>;

async fn current(session: &Session) -> Result<Settings<RouterSettings>, Problem> {
    session.execute(GetSettings).await.map(Settings)
}

/// Returns the router-wide settings.
pub(crate) async fn settings(session: Session) -> TaggedSettings {
    current(&session).await.map(WithTag)
}

/// Changes router-wide settings.
pub(crate) async fn set_settings(
    session: Session,
    condition: Condition,
    Settings(given): Settings<Map<String, Value>>,
) -> TaggedSettings {
    condition.check(current(&session)).await?;
    session.execute(SetSettings { changes: given }).await.map(Settings).map(WithTag)
}

/// Result of clearing the counters.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Cleared {
    /// Always `true`.
    cleared: bool,
}

/// Clears the packet counters.
pub(crate) async fn clear(session: Session) -> Answer<Cleared> {
    session.execute(ClearCounters).await?;
    Ok(Json(Cleared { cleared: true }))
}
