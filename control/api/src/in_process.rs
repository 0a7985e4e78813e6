//! API without sockets and threads. Fuzz targets use it to send requests in the name of callers with any
//! role.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use http_body_util::BodyExt as _;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use millrace_controller::{Principal, Role, Router};
use tokio::sync::{mpsc, watch};

use crate::catalogue::{self, catalogue};
use crate::entrance::access_control::{AccessControl, Caller, LocalUser, Needs, Standing};
use crate::entrance::control_channel::{ControlChannel, Message};
use crate::entrance::users::Users;
use crate::limits::Limits;
use crate::served::{Interface, Served};
use crate::server::take;

/// Number of user ids that requests rotate through, so that no user exceeds the rate limit.
const CALLERS: u32 = 1000;

/// Paths of all resources, with the role that each method needs.
static NEEDS: LazyLock<Vec<(&'static str, Needs)>> = LazyLock::new(catalogue::needs);

/// Caller of a request at the Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    /// Caller with the given role; `None` for a caller without a role.
    Role(Option<Role>),
    /// User of this machine, by uid; the user's groups determine the role.
    User(u32),
}

/// API of a router, in this process.
#[derive(Debug)]
pub struct InProcess {
    access: TowerToHyperService<axum::Router>,
    resources: TowerToHyperService<axum::Router>,
    asked: mpsc::Receiver<Message>,
    control: Router,
    users: Users,
    caller: u32,
    /// Sender whose drop ends all streams.
    _end: watch::Sender<bool>,
}

impl InProcess {
    /// Returns the API of a router. `groups` assigns roles to the members of groups.
    pub fn new(control: Router, groups: BTreeMap<String, Role>) -> Self {
        let (end, ending) = watch::channel(false);
        let (channel, asked) = ControlChannel::new();
        let limits = Limits::default();
        let access = AccessControl { channel, tokens: control.tokens().clone(), limits: limits.clone() };
        let interface = Arc::new(Interface::at(std::path::Path::new("none"), None));
        let served = Served::new(control.clone(), ending, limits, interface);
        Self {
            access: TowerToHyperService::new(access.service(NEEDS.clone())),
            resources: TowerToHyperService::new(catalogue::router(served)),
            asked,
            control,
            users: Users::new(groups),
            caller: 0,
            _end: end,
        }
    }

    /// Returns method, path and needed role of each operation.
    pub fn operations() -> Vec<(&'static str, &'static str, Role)> {
        let of = |resource: crate::endpoint::Resource| {
            let path = resource.path;
            resource.endpoints.into_iter().map(move |one| (one.method, path, one.role)).collect::<Vec<_>>()
        };
        catalogue().into_iter().flat_map(of).collect()
    }

    /// Sends a request. Returns status and body; the body is empty for a stream. Returns `None` if the input
    /// is no valid HTTP request.
    pub async fn ask(
        &mut self,
        asking: Asking,
        method: &str,
        path: &str,
        body: Vec<u8>,
    ) -> Option<(u16, Vec<u8>)> {
        let mut request = Request::builder().method(method).uri(path).body(Body::from(body)).ok()?;
        self.caller = (self.caller + 1) % CALLERS;
        let (uid, known) = match asking {
            Asking::Role(role) => {
                let principal = Principal { role, ..Principal::user(Some(self.caller), None) };
                (self.caller, LocalUser::fixed(principal))
            }
            Asking::User(uid) => (uid, LocalUser::default()),
        };
        let caller = Caller::Local { uid: Some(uid), pid: None, known, place: Standing::reserved() };
        request.extensions_mut().insert(Arc::new(caller));
        let answer = self.access.call(request);
        let mut answer = std::pin::pin!(answer);
        let response = loop {
            tokio::select! {
                answered = &mut answer => break answered,
                Some(message) = self.asked.recv() => {
                    take(message, &self.control, &self.resources, &self.users);
                }
            }
        };
        let (parts, body) = match response {
            Ok(response) => response.into_parts(),
            Err(never) => match never {},
        };
        // Don't read a stream: it may never end.
        let body = match body.size_hint().exact() {
            Some(_) => body.collect().await.map(|whole| whole.to_bytes().to_vec()).unwrap_or_default(),
            None => Vec::new(),
        };
        Some((parts.status.as_u16(), body))
    }
}
