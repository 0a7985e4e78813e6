//! Handlers of router-wide settings.

use millrace_controller::RouterSettings;
use millrace_controller::operation::{GetSettings, SetSettings};
use serde_json::{Map, Value};

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
