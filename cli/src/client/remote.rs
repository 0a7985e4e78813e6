//! Remote router: its address, the verification of its certificate, and the API token.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper::Uri;
use millrace_controller::utc;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::arguments::Connection;
use crate::output::Failure;

/// Files in which Linux distributions keep the trusted CA certificates.
const TRUSTED: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
/// Default port of `--server` URLs.
const PORT: u16 = 8443;

/// Address of a remote router, with TLS configuration and API token.
#[derive(Debug)]
pub struct Remote {
    host: String,
    port: u16,
    name: ServerName<'static>,
    config: Arc<ClientConfig>,
    token: String,
}

impl Remote {
    /// Parses the address `url`, and reads the API token and certificates of `connection`.
    ///
    /// # Errors
    /// The address, the token or the certificates can't be used.
    pub fn new(url: &str, connection: &Connection) -> Result<Self, Failure> {
        let wrong = || Failure::usage(format!("--server {url:?}: give https://HOST or https://HOST:PORT"));
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let (Some("https"), Some(host)) = (uri.scheme_str(), uri.host()) else { return Err(wrong()) };
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(wrong());
        }
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host.clone()).map_err(|_| wrong())?;
        let (config, token) = (Arc::new(config(connection)?), token(connection)?);
        Ok(Self { host, port: uri.port_u16().unwrap_or(PORT), name, config, token })
    }

    /// Returns the value of the HTTP `Authorization` header.
    pub fn authorization(&self) -> String {
        format!("Bearer {}", self.token)
    }

    /// Returns the router's URL for messages.
    pub fn place(&self) -> String {
        format!("https://{}:{}", self.host, self.port)
    }

    /// Connects, and verifies the router's certificate.
    ///
    /// # Errors
    /// The router can't be reached, or its certificate is not accepted.
    pub async fn connect(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        // TCP_NODELAY: each request is one write, so waiting for more data only adds delay.
        let _ = stream.set_nodelay(true);
        let connected = TlsConnector::from(self.config.clone()).connect(self.name.clone(), stream).await;
        connected.map_err(explained)
    }
}

/// Rephrases the errors of certificate verification in plain words. Other errors stay unchanged.
fn explained(error: std::io::Error) -> std::io::Error {
    let wrong = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::InvalidCertificate(wrong)) = wrong else { return error };
    let words = match wrong {
        CertificateError::ExpiredContext { not_after, .. } => {
            format!("its certificate expired {}", utc(not_after.as_secs()))
        }
        CertificateError::NotValidYetContext { time, not_before } => {
            let (begin, now) = (utc(not_before.as_secs()), utc(time.as_secs()));
            format!("its certificate is valid from {begin} on, but this machine's clock is at {now}")
        }
        CertificateError::NotValidForNameContext { presented, .. } => {
            format!("its certificate is not valid for this name, but for: {}", presented.join(", "))
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "its certificate has no trusted issuer: give the CA certificate with --ca, or the router's \
             fingerprint with --fingerprint"
                .to_owned()
        }
        _ => return error,
    };
    std::io::Error::new(error.kind(), words)
}

/// Returns the API token, trimmed of white space.
fn token(connection: &Connection) -> Result<String, Failure> {
    let (place, text) = match &connection.token_file {
        Some(path) => (path.display().to_string(), read(path, "the token")?),
        None => {
            let said = std::env::var("MILLRACE_TOKEN").map_err(|_| {
                Failure::usage(
                    "--server needs an API token: name its file with --token-file, or set MILLRACE_TOKEN",
                )
            })?;
            ("MILLRACE_TOKEN".to_owned(), said)
        }
    };
    let token = text.trim().to_owned();
    match token.bytes().all(|byte| byte.is_ascii_graphic()) && !token.is_empty() {
        true => Ok(token),
        false => Err(Failure::usage(format!(
            "{place} has no valid API token: give the line that `millrace token create` printed"
        ))),
    }
}

fn read(path: &Path, what: &str) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::new(format!("can't read {what} of {}: {error}", path.display())))
}

fn config(connection: &Connection) -> Result<ClientConfig, Failure> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone());
    let builder = builder.with_protocol_versions(&[&TLS13, &TLS12]).map_err(Failure::new)?;
    let mut config = match &connection.fingerprint {
        Some(text) => {
            let verifier = Arc::new(ByFingerprint { fingerprint: fingerprint(text)?, provider });
            builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
        }
        None => builder.with_root_certificates(trusted(connection.ca.as_deref())?).with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Returns the trusted CA certificates: from the file of `--ca`, or from the system.
fn trusted(said: Option<&Path>) -> Result<RootCertStore, Failure> {
    let usual = || {
        let told = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
        told.or_else(|| TRUSTED.iter().map(PathBuf::from).find(|path| path.exists()))
    };
    let path = said.map(Path::to_owned).or_else(usual).ok_or_else(|| {
        Failure::usage(
            "this machine has no list of trusted CA certificates: give one with --ca, or the router's \
             fingerprint with --fingerprint",
        )
    })?;
    let failed =
        |error: String| Failure::new(format!("can't use the certificates of {}: {error}", path.display()));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(&path).map_err(|error| failed(error.to_string()))? {
        let certificate = certificate.map_err(|error| failed(error.to_string()))?;
        match roots.add(certificate) {
            // Skip certificates of the system that rustls can't parse: its list may contain old ones.
            Err(error) if said.is_some() => return Err(failed(error.to_string())),
            _ => {}
        }
    }
    if roots.is_empty() { Err(failed("the file has no certificate".to_owned())) } else { Ok(roots) }
}

/// Parses a fingerprint, with or without colons.
fn fingerprint(text: &str) -> Result<[u8; 32], Failure> {
    let digits: String =
        text.trim().trim_start_matches("sha256:").chars().filter(|one| *one != ':').collect();
    let byte = |at: usize| u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..32).map(byte).collect();
    match bytes.filter(|_| digits.len() == 64).and_then(|bytes| bytes.try_into().ok()) {
        Some(bytes) => Ok(bytes),
        None => Err(Failure::usage(format!(
            "--fingerprint {text:?}: give the SHA-256 of the certificate, 64 hexadecimal digits, as \
             `millrace show status` shows it"
        ))),
    }
}

/// Verifier that accepts a certificate by its fingerprint. The TLS handshake then proves that the router has
/// the certificate's private key.
#[derive(Debug)]
struct ByFingerprint {
    fingerprint: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ByFingerprint {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let found: [u8; 32] = Sha256::digest(end_entity).into();
        if found == self.fingerprint {
            return Ok(ServerCertVerified::assertion());
        }
        let found: Vec<String> = found.iter().map(|byte| format!("{byte:02X}")).collect();
        Err(rustls::Error::General(format!(
            "its certificate has another fingerprint than --fingerprint: {}",
            found.join(":")
        )))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_parsed_as_written() {
        let digits = "ab".repeat(32);
        let colons = vec!["AB"; 32].join(":");
        for text in [&digits, &colons, &format!("sha256:{digits}")] {
            assert_eq!(fingerprint(text).unwrap(), [0xab; 32], "{text}");
        }
        for wrong in ["", "ab", &"ab".repeat(33), &"xy".repeat(32)] {
            assert_eq!(fingerprint(wrong).unwrap_err().code, 2, "{wrong}");
        }
    }
}
