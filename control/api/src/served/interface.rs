//! Status of the API itself: sockets, certificate and threads.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use millrace_confine::look;
use schemars::JsonSchema;
use serde::Serialize;

use crate::entrance::certificate::Certificate;
use crate::entrance::remote::Remote;

/// Sockets, certificate and threads of the API.
#[derive(Debug)]
pub(crate) struct Interface {
    socket: String,
    listen: Vec<SocketAddr>,
    certificate: Option<Arc<Certificate>>,
    /// Names and ids of the client threads.
    pub threads: Vec<(&'static str, i32)>,
}

impl Interface {
    /// Returns the status of an API at the Unix socket `socket`, and at remote sockets if there are any.
    pub fn at(socket: &Path, remote: Option<&Remote>) -> Self {
        let listeners = remote.map(|remote| &remote.listeners).into_iter().flatten();
        let listen: Vec<SocketAddr> = listeners.filter_map(|listener| listener.local_addr().ok()).collect();
        let certificate = remote.map(|remote| remote.certificate.clone());
        if let Some(certificate) = &certificate {
            let addresses = list(&listen);
            tracing::info!("serving HTTPS at {addresses}, with {}", words(certificate));
        }
        Self { socket: socket.display().to_string(), listen, certificate, threads: Vec::new() }
    }

    /// Returns the status as `/status` shows it.
    pub fn view(&self) -> InterfaceView {
        let thread = |&(name, thread): &(&'static str, i32)| ThreadView {
            name,
            thread,
            confined: look(thread).ok().map(|seen| seen.is_complete()),
        };
        InterfaceView {
            socket: self.socket.clone(),
            listen: self.listen.iter().map(SocketAddr::to_string).collect(),
            fingerprint: self.certificate.as_ref().and_then(|certificate| certificate.fingerprint()),
            threads: self.threads.iter().map(thread).collect(),
        }
    }

    /// Whether the API is served over TLS.
    pub fn has_certificate(&self) -> bool {
        self.certificate.is_some()
    }

    /// Reads the certificate again if its files have changed.
    pub fn renew(&self) {
        let Some(certificate) = &self.certificate else { return };
        match certificate.renew() {
            Ok(false) => {}
            Ok(true) => tracing::info!("the certificate was renewed: {}", words(certificate)),
            Err(error) if certificate.fingerprint().is_none() => {
                tracing::error!("TLS clients can't connect: {error}");
            }
            Err(error) => {
                tracing::error!("the new certificate is refused, and the old one stays in use: {error}")
            }
        }
        if let Some(since) = certificate.tell_expired() {
            tracing::error!("the certificate in use expired {since}, so clients refuse it: replace it");
        }
    }
}

/// Describes the certificate in use, for the log.
fn words(certificate: &Certificate) -> String {
    match (certificate.fingerprint(), certificate.holds_until()) {
        (None, _) => "no valid certificate".to_owned(),
        (Some(one), None) => format!("certificate with SHA-256 {one}"),
        (Some(one), Some(end)) => format!("certificate with SHA-256 {one}, valid until {end}"),
    }
}

fn list(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ")
}

/// Status of the API.
#[derive(Serialize, JsonSchema)]
pub(crate) struct InterfaceView {
    /// Path of the Unix socket.
    socket: String,
    /// Addresses at which the API listens with TLS.
    listen: Vec<String>,
    /// SHA-256 fingerprint of the TLS certificate; absent without TLS, or if the certificate has expired.
    fingerprint: Option<String>,
    /// Client threads.
    threads: Vec<ThreadView>,
}

/// Client thread.
#[derive(Serialize, JsonSchema)]
struct ThreadView {
    /// Name of the thread.
    name: &'static str,
    /// Id of the thread.
    thread: i32,
    /// Whether the thread has no capabilities and its system calls are filtered; absent if the system doesn't
    /// report it.
    confined: Option<bool>,
}
