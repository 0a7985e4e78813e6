//! Session: the router, used with the rights of a request's caller.

use axum::extract::{Extension, FromRequestParts};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use millrace_controller::{Call, Operation};
use tokio::runtime::Handle;

use crate::http::problem::Problem;
use crate::served::Served;
use crate::served::long::long;

/// Router and call of a request, extracted for its handler.
pub(crate) struct Session {
    pub served: Served,
    pub call: Call,
}

impl FromRequestParts<Served> for Session {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, served: &Served) -> Result<Self, Problem> {
        let call = Extension::<Call>::from_request_parts(parts, served).await;
        let Extension(call) = call
            .map_err(|missing| Problem::new(missing.status(), "internal error: the request has no caller"))?;
        Ok(Self { served: served.clone(), call })
    }
}

impl Session {
    /// Executes an operation as the caller.
    ///
    /// # Errors
    /// Returns the problem of a refused or failed operation.
    pub async fn execute<O: Operation>(&self, operation: O) -> Result<O::Answer, Problem> {
        self.served.control.execute(&self.call, operation).await.map_err(Problem::from)
    }

    /// Waits for a slot of the caller, then executes a slow operation on a blocking thread. Also makes the
    /// response on that thread.
    pub async fn execute_long<O: Operation + 'static, T: IntoResponse>(
        &self,
        operation: O,
        respond: impl FnOnce(O::Answer) -> Result<T, Problem> + Send + 'static,
    ) -> Response {
        let (runtime, call) = (Handle::current(), self.call.clone());
        let work = move |control: &millrace_controller::Router| {
            respond(runtime.block_on(control.execute(&call, operation))?)
        };
        long(&self.served, self.call.principal(), work).await
    }
}
