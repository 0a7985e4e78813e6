//! Answers on the socket until told to stop.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::catalogue::{self, Documents};
use crate::control::Control;
use crate::limits::{Limits, Patient};
use crate::listener::Listener;
use crate::peer::Peer;
use crate::rates::Sampler;

/// How long a client may take to send a request's head, or keep a connection without a request.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// How long answers that are under way may take when the server stops.
const GRACE: Duration = Duration::from_millis(500);
/// Clients at one time; others wait in the socket's queue.
const MAX_CONNECTIONS: usize = 256;
/// A rest after the system refused a connection: it lacks descriptors, and asking again at once gets none.
const REST: Duration = Duration::from_millis(100);

/// What requests are answered with.
#[derive(Clone, Debug)]
pub(crate) struct Served<C> {
    pub control: C,
    /// True when the server stops.
    pub ending: watch::Receiver<bool>,
    /// What is served of the interface itself.
    pub documents: Arc<Documents>,
    /// The counters, as they were a moment ago.
    pub sampler: Sampler,
    /// What is left to clients.
    pub limits: Limits,
}

/// Answers clients until `shutdown` is ready; then removes the socket, ends captures, and gives answers that are under
/// way half a second.
pub async fn serve<C: Control>(listener: Listener, control: C, shutdown: impl Future<Output = ()>) {
    let (end, ending) = watch::channel(false);
    let (documents, sampler, limits) = Default::default();
    let app = catalogue::router(Served { control, ending: ending.clone(), documents, sampler, limits });
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok(stream) => {
                    let app = app.clone().layer(Extension(Peer::of(&stream)));
                    connections.spawn(connection(stream, app, ending.clone()));
                }
                Err(error) => {
                    tracing::warn!("can't accept a client: {error}");
                    tokio::time::sleep(REST).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    end.send_replace(true);
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(GRACE, drained).await.is_err() {
        connections.shutdown().await;
    }
}

async fn connection(stream: UnixStream, app: axum::Router, mut ending: watch::Receiver<bool>) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE);
    let mut connection =
        pin!(http.serve_connection(TokioIo::new(Patient::new(stream)), TowerToHyperService::new(app)));
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = ended(&mut ending) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!("a client's connection ended: {error}");
    }
}

async fn ended(ending: &mut watch::Receiver<bool>) {
    // A closed channel is an end as well.
    let _ = ending.wait_for(|ending| *ending).await;
}

#[cfg(test)]
mod tests;
