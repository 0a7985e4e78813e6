//! Resource of API tokens for remote access.

use axum::Json;
use millrace_controller::operation::RevokeToken;
use serde::Serialize;

use super::Answer;
use crate::http::extract::Name;
use crate::served::Session;

pub(crate) async fn revoke(session: Session, Name(name): Name) -> Answer<impl Serialize> {
    session.execute(RevokeToken { name }).await.map(Json)
}
