//! Remote access over TCP, always with TLS.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use millrace_config::Api;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, setsockopt, socket, sockopt,
};
use rustls::ServerConfig;
use rustls::version::{TLS12, TLS13};

use crate::ApiError;
use crate::entrance::certificate::{self, Certificate, Place};

/// Listening TCP sockets with their TLS certificate.
#[derive(Debug)]
pub struct Remote {
    pub(crate) listeners: Vec<TcpListener>,
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) certificate: Arc<Certificate>,
}

/// Invalid setting of the API.
#[derive(Debug)]
pub struct Unservable {
    /// Key of the setting in `[api]`.
    pub key: &'static str,
    /// Reason why the setting is invalid.
    pub error: ApiError,
}

impl Remote {
    /// Checks whether [`open`](Self::open) can succeed. Reads the configured certificate, and binds each
    /// address briefly; writes nothing and doesn't listen. Returns the problems that don't prevent a start:
    /// an expired certificate, and addresses in use.
    ///
    /// # Errors
    /// Returns the invalid setting.
    pub fn check(settings: &Api) -> Result<Vec<ApiError>, Unservable> {
        let mut notes = Vec::new();
        if settings.listen.is_empty() {
            return Ok(notes);
        }
        if let (Some(chain), Some(key)) = (&settings.certificate, &settings.key) {
            match certificate::check(chain, key) {
                Ok(()) => {}
                Err((_, error @ ApiError::Expired { .. })) => notes.push(error),
                Err((key, error)) => return Err(Unservable { key, error }),
            }
        }
        let wrong = |error| Unservable { key: "listen", error };
        unless_covered(&settings.listen).map_err(wrong)?;
        for address in &settings.listen {
            match take(*address) {
                Ok(_) => {}
                Err(Errno::EADDRINUSE) => notes.push(refused(*address, Errno::EADDRINUSE)),
                Err(error) => return Err(wrong(refused(*address, error))),
            }
        }
        Ok(notes)
    }

    /// Listens at the configured addresses; returns `None` if there are none. A self-signed certificate is
    /// stored in `state`.
    ///
    /// # Errors
    /// Returns an error for an unusable certificate, or an address that can't be bound.
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
        unless_covered(&settings.listen)?;
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

/// Refuses two listening addresses with the same port if they are equal, or if one is a wildcard address that
/// includes the other.
fn unless_covered(addresses: &[SocketAddr]) -> Result<(), ApiError> {
    let covers = |one: &SocketAddr, other: &SocketAddr| {
        // An IPv6 wildcard socket also accepts IPv4 connections.
        let is_within = one.is_ipv6() || other.is_ipv4();
        one.port() == other.port() && (one.ip() == other.ip() || (one.ip().is_unspecified() && is_within))
    };
    for (place, address) in addresses.iter().enumerate() {
        let before = addresses[..place].iter().find(|one| covers(one, address) || covers(address, one));
        if let Some(other) = before {
            return Err(ApiError::Covered { address: *address, other: *other });
        }
    }
    Ok(())
}

/// Returns a socket bound to an address. The socket doesn't listen, so no client can connect.
fn take(address: SocketAddr) -> nix::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let taken = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    // Set the option as a listener does, so that connections in TIME_WAIT don't prevent binding.
    setsockopt(&taken, sockopt::ReuseAddr, &true)?;
    bind(taken.as_raw_fd(), &SockaddrStorage::from(address))?;
    Ok(taken)
}

fn refused(address: SocketAddr, error: Errno) -> ApiError {
    ApiError::Address { address, error: error.into() }
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

/// Returns the names for a self-signed certificate: host name, configured names and listening addresses.
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::test_directory::TestDirectory;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_that_cover_each_other_are_refused_before_one_is_taken() {
        for (one, other, is_covered) in [
            ("127.0.0.1:1", "127.0.0.1:1", true),
            ("0.0.0.0:1", "127.0.0.1:1", true),
            ("127.0.0.1:1", "[::]:1", true),
            ("[::1]:1", "[::]:1", true),
            ("[::1]:1", "0.0.0.0:1", false),
            ("0.0.0.0:1", "127.0.0.1:2", false),
            ("127.0.0.1:1", "127.0.0.2:1", false),
        ] {
            let found = unless_covered(&[address(one), address(other)]);
            assert_eq!(found.is_err(), is_covered, "{one} {other}: {found:?}");
        }
    }

    #[test]
    fn check_finds_errors_of_serving_without_serving() {
        let directory = TestDirectory::new();
        let listening = TcpListener::bind("127.0.0.1:0").unwrap();
        let busy = listening.local_addr().unwrap();
        let mut settings = Api { listen: vec![busy], ..Api::default() };
        let notes = Remote::check(&settings).unwrap();
        assert!(notes.len() == 1 && notes[0].to_string().contains(&busy.to_string()), "{notes:?}");
        drop(listening);
        assert!(Remote::check(&settings).unwrap().is_empty());
        assert!(TcpListener::bind(busy).is_ok(), "it was let go of");
        // 192.0.2.1 is reserved for documentation (RFC 5737), so no machine has this address.
        settings.listen = vec![address("192.0.2.1:8443")];
        let wrong = Remote::check(&settings).unwrap_err();
        assert!(wrong.key == "listen" && wrong.error.to_string().contains("192.0.2.1:8443"), "{wrong:?}");
        settings.listen = vec![busy];
        let (chain, key) = (directory.join("c.pem"), directory.join("k.pem"));
        (settings.certificate, settings.key) = (Some(chain.clone()), Some(key.clone()));
        assert_eq!(Remote::check(&settings).unwrap_err().key, "certificate");
        let [one, other] = [(); 2].map(|()| rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap());
        fs::write(&chain, one.cert.pem()).unwrap();
        assert_eq!(Remote::check(&settings).unwrap_err().key, "key");
        fs::write(&key, other.signing_key.serialize_pem()).unwrap();
        let wrong = Remote::check(&settings).unwrap_err();
        assert!(wrong.key == "certificate" && wrong.error.to_string().contains("c.pem"), "{wrong:?}");
        fs::write(&key, one.signing_key.serialize_pem()).unwrap();
        assert!(Remote::check(&settings).unwrap().is_empty());
    }
}
