//! Where the interface is served to others than processes of this machine: TCP, and only with TLS.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

use millrace_config::Api;
use rustls::ServerConfig;
use rustls::version::{TLS12, TLS13};

use crate::ApiError;
use crate::certificate::{Certificate, Place};

/// Sockets that are listened at, and what is served there with.
#[derive(Debug)]
pub struct Remote {
    pub(crate) listeners: Vec<TcpListener>,
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) certificate: Arc<Certificate>,
}

impl Remote {
    /// Listens where the settings say; `None` where they name no address. An own certificate is kept in `state`.
    ///
    /// # Errors
    /// A certificate that can't be used, or an address that can't be listened at.
    pub fn open(settings: &Api, state: Option<PathBuf>) -> Result<Option<Self>, ApiError> {
        if settings.listen.is_empty() {
            return Ok(None);
        }
        let place = match (&settings.certificate, &settings.key) {
            (Some(certificate), Some(key)) => Place::Given(certificate.clone(), key.clone()),
            _ => Place::Own(state, names(settings)),
        };
        let certificate = Arc::new(Certificate::open(place)?);
        let config = Arc::new(config(certificate.clone())?);
        let listeners = settings.listen.iter().copied().map(listen).collect::<Result<_, _>>()?;
        Ok(Some(Self { listeners, config, certificate }))
    }
}

fn listen(address: SocketAddr) -> Result<TcpListener, ApiError> {
    let failed = |error| ApiError::Address { address, error };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

fn config(certificate: Arc<Certificate>) -> Result<ServerConfig, ApiError> {
    let failed = |error: rustls::Error| ApiError::OwnCertificate { why: error.to_string() };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(&[&TLS13, &TLS12]).map_err(failed)?;
    let mut config = builder.with_no_client_auth().with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// What an own certificate is for: this machine by its name, by those that were said, and by the addresses that are listened at.
fn names(settings: &Api) -> Vec<String> {
    let host = nix::sys::utsname::uname().ok().and_then(|about| about.nodename().to_str().map(str::to_owned));
    let usual = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let listened = settings.listen.iter().map(SocketAddr::ip).filter(|address| !address.is_unspecified());
    let all =
        settings.names.iter().cloned().chain(host).chain(usual).chain(listened.map(|one| one.to_string()));
    let mut names: Vec<String> = Vec::new();
    for name in all.filter(|name| !name.is_empty()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}
