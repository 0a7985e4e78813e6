//! Access control: authenticates the caller of each request, checks its role, and applies rate limits.
//!
//! The catalogue defines the role that each operation needs. A path outside the catalogue needs the role
//! `viewer`.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use millrace_controller::{ControlError, Holder, Outcome, Principal, Role, Tokens};
use millrace_units::Spelling;
use tokio::sync::Notify;

use crate::entrance::control_channel::ControlChannel;
use crate::http::extract::LONG_BODY;
use crate::http::problem::Problem;
use crate::limits::places::{Source, StrangersPlace};
use crate::limits::shares::Slot;
use crate::limits::{Key, Limits};

/// Client at the other end of a connection.
#[derive(Debug)]
pub(crate) enum Caller {
    /// Process of this machine, connected to the Unix socket.
    Local {
        /// User id of the process; `None` if the kernel doesn't report it.
        uid: Option<u32>,
        /// Process id.
        pid: Option<i32>,
        /// Name and role of the user.
        known: LocalUser,
        /// Slot that the client's connection occupies.
        place: Standing<Option<u32>>,
    },
    /// Remote client.
    Remote {
        /// Address of the client.
        address: SocketAddr,
        /// Holder of the token of the last request.
        holder: Mutex<Option<Holder>>,
        /// Slot that the client's connection occupies.
        place: Standing<IpAddr>,
    },
}

/// Time for which a connection keeps the role of its user.
const FRESH: Duration = Duration::from_secs(60);

/// User of a local connection, as control has described it last.
#[derive(Debug, Default)]
pub(crate) struct LocalUser(Mutex<Option<(Principal, Option<Instant>)>>);

impl LocalUser {
    /// Returns a user whose role never changes.
    #[cfg(feature = "fuzzing")]
    pub fn fixed(principal: Principal) -> Self {
        Self(Mutex::new(Some((principal, None))))
    }

    /// Returns name and role; `None` before the first request.
    pub fn last(&self) -> Option<Principal> {
        self.lock().as_ref().map(|(principal, _)| principal.clone())
    }

    /// Returns name and role if they are not older than [`FRESH`].
    pub fn fresh(&self, now: Instant) -> Option<Principal> {
        let is_fresh = |at: Option<Instant>| at.is_none_or(|at| now.saturating_duration_since(at) < FRESH);
        self.lock().as_ref().filter(|(_, at)| is_fresh(*at)).map(|(principal, _)| principal.clone())
    }

    /// Records name and role.
    pub fn note(&self, principal: Principal, now: Instant) {
        *self.lock() = Some((principal, Some(now)));
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Principal, Option<Instant>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connection slot of a client. It is a slot for strangers until the client is authenticated, and then a slot
/// for known callers.
#[derive(Debug)]
pub(crate) struct Standing<S: Source>(Mutex<Stands<S>>);

#[derive(Debug)]
enum Stands<S: Source> {
    /// Slot of a stranger: a caller that is not yet authenticated.
    Stranger(StrangersPlace<S>),
    /// Slot of an authenticated caller.
    Known(#[expect(dead_code, reason = "kept as long as the connection")] Slot),
    /// Slot reserved for root and the router's own user.
    Reserved,
}

impl<S: Source> Standing<S> {
    /// Wraps the connection slot of a stranger.
    pub fn stranger(place: StrangersPlace<S>) -> Self {
        Self(Mutex::new(Stands::Stranger(place)))
    }

    /// Returns a reserved slot, for root or the router's own user.
    pub fn reserved() -> Self {
        Self(Mutex::new(Stands::Reserved))
    }

    /// Exchanges a stranger's slot for a slot of the authenticated caller `caller`. Does nothing for other
    /// slots.
    ///
    /// # Errors
    /// Returns 503 if no slot for authenticated callers is free.
    fn know(&self, caller: &str, role: Role) -> Result<(), Problem> {
        let mut stands = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Stands::Stranger(stranger) = &*stands else { return Ok(()) };
        let known = stranger.know(caller, role).ok_or_else(|| {
            let detail = format!(
                "no connection slot is free for {caller}: close a connection, or try again in a second"
            );
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).with_retry(1).closing()
        })?;
        *stands = Stands::Known(known);
        Ok(())
    }

    /// Returns the notification at which this stranger's connection must end, because another one displaces
    /// it. `None` for an authenticated caller.
    fn displaced(&self) -> Option<Arc<Notify>> {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Stands::Stranger(stranger) => Some(stranger.displaced()),
            Stands::Known(_) | Stands::Reserved => None,
        }
    }
}

impl Caller {
    /// Returns the holder of the last valid token on the connection; `None` before a valid token.
    pub fn holder(&self) -> Option<Holder> {
        match self {
            Self::Local { .. } => None,
            Self::Remote { holder, .. } => holder.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// Returns a remote client. It is a stranger until it sends a valid token.
    pub fn remote(address: SocketAddr, place: StrangersPlace<IpAddr>) -> Self {
        Self::Remote { address, holder: Mutex::default(), place: Standing::stranger(place) }
    }

    /// Waits until this stranger is displaced, or `patience` has passed without authentication. Never returns
    /// for an authenticated caller.
    pub async fn remains_stranger(&self, patience: Duration) {
        let Some(displaced) = self.displaced() else { return std::future::pending().await };
        tokio::select! {
            () = tokio::time::sleep(patience) => {}
            () = displaced.notified() => {}
        }
        if self.displaced().is_none() {
            std::future::pending().await
        }
    }

    /// Returns the maximum number of bytes of an unread request body that the server discards after the
    /// answer. A client can read the answer only after it has sent its body. A remote stranger gets a lower
    /// maximum.
    pub fn unread(&self) -> u64 {
        match self {
            Self::Remote { place, .. } if place.displaced().is_some() => STRANGERS_UNREAD,
            _ => LONG_BODY as u64,
        }
    }

    fn displaced(&self) -> Option<Arc<Notify>> {
        match self {
            Self::Local { place, .. } => place.displaced(),
            Self::Remote { place, .. } => place.displaced(),
        }
    }
}

/// Maximum number of bytes of a remote stranger's unread request body that the server discards after the
/// answer.
const STRANGERS_UNREAD: u64 = 1 << 20;

/// Roles that the methods of one path need: method and role.
pub(crate) type Needs = Arc<[(&'static str, Role)]>;

/// Access control of the client threads: admits or refuses each request.
#[derive(Clone, Debug)]
pub(crate) struct AccessControl {
    pub channel: ControlChannel,
    pub tokens: Tokens,
    pub limits: Limits,
}

impl AccessControl {
    /// Returns the HTTP service of the client threads, which admits requests and passes them to control.
    /// `resources` holds all paths, with the role that each method needs.
    pub fn service(self, resources: Vec<(&'static str, Needs)>) -> axum::Router {
        let guarded = |access: Self, needs: Needs| {
            move |request: Request| {
                let (access, needs) = (access.clone(), needs.clone());
                async move { access.pass(request, &needs).await }
            }
        };
        let router = resources.into_iter().fold(axum::Router::new(), |router, (path, needs)| {
            router.route(path, any(guarded(self.clone(), needs)))
        });
        router.fallback(guarded(self, Arc::default()))
    }

    async fn pass(self, request: Request, needs: &Needs) -> Response {
        let Some(caller) = request.extensions().get::<Arc<Caller>>().cloned() else {
            return Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal error: the request has no caller",
            )
            .into_response();
        };
        let (head, body) = request.into_parts();
        match self.admit(&caller, &head, needed(&head.method, needs)).await {
            Ok(principal) => self.channel.carry(Request::from_parts(head, body), principal).await,
            Err(problem) => problem.into_response(),
        }
    }

    /// Authenticates and authorizes the caller of a request.
    ///
    /// # Errors
    /// Returns 401 without a valid token, 403 without the needed role, 429 beyond the rate limit, or 503
    /// without a free slot.
    async fn admit(&self, caller: &Caller, head: &Parts, needed: Role) -> Result<Principal, Problem> {
        let principal = match caller {
            Caller::Local { uid, pid, known, place } => {
                if let Err(problem) = self.limits.request(Key::User(*uid), Instant::now()) {
                    let who = known.last().unwrap_or_else(|| Principal::user(*uid, *pid));
                    self.refused(Key::User(*uid), &who, head, &problem).await;
                    return Err(problem);
                }
                let principal = self.local(*uid, *pid, known).await?;
                if let Some(role) = principal.role {
                    place.know(&principal.who.name, role)?;
                }
                principal
            }
            Caller::Remote { address, holder, place } => {
                let found = self.remote(address.ip(), head).await?;
                place.know(found.name(), found.role())?;
                let principal = Principal::token(found.name(), found.role(), address.ip());
                let key = Key::Token(found.name().to_owned());
                if let Err(problem) = self.limits.request(key.clone(), Instant::now()) {
                    self.refused(key, &principal, head, &problem).await;
                    return Err(problem);
                }
                *holder.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
                principal
            }
        };
        let Err(error) = principal.may(needed) else { return Ok(principal) };
        let problem = forbidden(error, &principal, needed);
        let who = match caller {
            Caller::Local { uid, .. } => Key::User(*uid),
            Caller::Remote { .. } => Key::Token(principal.who.name.clone()),
        };
        self.refused(who, &principal, head, &problem).await;
        Err(problem)
    }

    /// Authenticates a local caller by its user.
    async fn local(
        &self,
        uid: Option<u32>,
        pid: Option<i32>,
        known: &LocalUser,
    ) -> Result<Principal, Problem> {
        if let Some(known) = known.fresh(Instant::now()) {
            return Ok(known);
        }
        let uid = uid.ok_or_else(|| {
            Problem::new(
                StatusCode::FORBIDDEN,
                "can't identify the client: the kernel reports no user of its connection",
            )
        })?;
        let found = self.channel.find(uid).await?;
        let principal = Principal { who: found.who, role: found.role, pid, from: None };
        known.note(principal.clone(), Instant::now());
        Ok(principal)
    }

    /// Authenticates a remote caller by its token.
    async fn remote(&self, from: IpAddr, head: &Parts) -> Result<Holder, Problem> {
        let sent = head.headers.get(header::AUTHORIZATION);
        let token = sent.and_then(|sent| sent.to_str().ok()).and_then(bearer);
        if let Some(holder) = token.and_then(|token| self.tokens.check(token, from)) {
            return Ok(holder);
        }
        let problem = unauthorized(sent.is_some());
        // A random token can't be guessed, so refusals need no delay.
        self.refused(Key::stranger(from), &Principal::stranger(from), head, &problem).await;
        Err(problem)
    }

    /// Records a refusal in the audit log, at a limited rate for each caller.
    async fn refused(&self, who: Key, principal: &Principal, head: &Parts, problem: &Problem) {
        if !self.limits.refusal(who, Instant::now()) {
            return;
        }
        let mut entry = principal.entry(format!("{} {}", head.method, head.uri), Outcome::Refused);
        (entry.status, entry.why) =
            (Some(problem.status.as_u16()), Some(problem.detail.spelled(Spelling::Json)));
        self.channel.note(entry).await;
    }
}

/// Returns the role that a method needs. A method that the path doesn't support needs the role `viewer`.
fn needed(method: &Method, needs: &Needs) -> Role {
    let method = if *method == Method::HEAD { Method::GET } else { method.clone() };
    needs.iter().find(|(name, _)| *name == method.as_str()).map_or(Role::Viewer, |(_, role)| *role)
}

/// Returns the token in an `Authorization` header (RFC 6750, 2.1).
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn unauthorized(was_sent: bool) -> Problem {
    let (detail, error) = match was_sent {
        false => {
            ("no API token: send `Authorization: Bearer TOKEN` with a token of `millrace token create`", "")
        }
        true => ("invalid API token: it is wrong, revoked or expired", ", error=\"invalid_token\""),
    };
    Problem::new(StatusCode::UNAUTHORIZED, detail).with_challenge(format!("Bearer realm=\"millrace\"{error}"))
}

fn forbidden(error: ControlError, principal: &Principal, needed: Role) -> Problem {
    let problem = Problem::from(error);
    match principal.from {
        None => problem,
        Some(_) => problem.with_challenge(format!(
            "Bearer realm=\"millrace\", error=\"insufficient_scope\", scope=\"{needed}\""
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_follows_the_scheme_bearer() {
        assert_eq!(bearer("Bearer abc"), Some("abc"));
        assert_eq!(bearer("bearer  abc "), Some("abc"));
        assert_eq!(bearer("Basic abc"), None);
        assert_eq!(bearer("abc"), None);
    }

    #[tokio::test]
    async fn refusals_by_rate_are_noted_as_often_as_other_refusals() {
        let (channel, mut asked) = ControlChannel::new();
        let (tokens, limits) = (Tokens::default(), Limits::default());
        let access = AccessControl { channel, tokens, limits };
        let caller = Arc::new(Caller::Local {
            uid: Some(7),
            pid: Some(1),
            known: LocalUser::default(),
            place: Standing::reserved(),
        });
        let mut refused = 0;
        while refused < 100 {
            let mut request = Request::new(axum::body::Body::empty());
            *request.method_mut() = Method::DELETE;
            *request.uri_mut() = "/counters".parse().unwrap();
            request.extensions_mut().insert(caller.clone());
            let needs: Needs = Arc::new([("DELETE", Role::Operator)]);
            while access.limits.request(Key::User(Some(7)), Instant::now()).is_ok() {}
            let answer = access.clone().pass(request, &needs);
            // If the bucket has gained a token since the loop above, the request is admitted and waits for
            // control. The test then tries again.
            let Ok(answer) = tokio::time::timeout(Duration::from_millis(200), answer).await else { continue };
            assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
            refused += 1;
        }
        drop(access);
        let mut noted = Vec::new();
        while let Some(message) = asked.recv().await {
            if let crate::entrance::control_channel::Message::Note(entry) = message {
                noted.push(entry);
            }
        }
        let first = &noted[0];
        assert_eq!(
            (&*first.operation, first.status, first.who.uid),
            ("DELETE /counters", Some(429), Some(7))
        );
        assert!((1..=40).contains(&noted.len()), "{}", noted.len());
    }

    #[test]
    fn methods_need_the_roles_of_the_catalogue() {
        let needs: Needs = Arc::new([("GET", Role::Operator), ("DELETE", Role::Admin)]);
        for (method, role) in [
            ("GET", Role::Operator),
            ("HEAD", Role::Operator),
            ("DELETE", Role::Admin),
            ("PUT", Role::Viewer),
        ] {
            assert_eq!(needed(&method.parse().unwrap(), &needs), role, "{method}");
        }
    }
}
