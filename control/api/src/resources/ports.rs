//! Handlers of ports.

use axum::Json;
use millrace_controller::operation::{ListPorts, SetPort};
use millrace_controller::view::PortView;
use serde_json::{Map, Value};

use super::{Answer, named};
use crate::http::extract::InPath;
use crate::http::naming::Settings;
use crate::served::Session;

/// Returns the port with this name.
pub(crate) async fn find_port(session: Session, InPath(name): InPath<String>) -> Answer<PortView> {
    named("port", session.execute(ListPorts).await?, |port| &port.name, &name).map(Json)
}

/// Changes settings of a port atomically.
pub(crate) async fn set_port(
    session: Session,
    InPath(name): InPath<String>,
    Settings(given): Settings<Map<String, Value>>,
) -> Answer<PortView> {
    session.execute(SetPort { name, changes: given }).await.map(Json)
}
