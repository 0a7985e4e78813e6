//! Handlers of router-wide settings.

use axum::response::{IntoResponse, Response};
use millrace_controller::RouterSettings;
use millrace_controller::operation::{GetSettings, SetSettings, Trial};
use serde_json::{Map, Value};

use super::trial::tried;
use crate::endpoint::TrialQuery;
use crate::http::extract::Arguments;
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
    Arguments(query): Arguments<TrialQuery>,
    Settings(changes): Settings<Map<String, Value>>,
) -> Result<Response, Problem> {
    condition.check(current(&session)).await?;
    let set = SetSettings { changes };
    match query.dry_run {
        true => tried(&session, Trial::SetSettings(set)).await,
        false => session.execute(set).await.map(|view| WithTag(Settings(view)).into_response()),
    }
}
