//! TLS certificate of the API: configured, or self-signed by the router.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use millrace_controller::utc;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, RootCertStore};
use sha2::{Digest as _, Sha256};

use crate::ApiError;

/// Files of the self-signed certificate and its key, in the state directory.
const OWN: [&str; 2] = ["interface.crt", "interface.key"];
/// Prefix of the comment line that lists the names of a self-signed certificate, above its PEM text.
const NAMES: &str = "# for: ";
/// Name of the failed action in errors about configured files.
const READ: &str = "read the certificate";
/// Lifetime of a self-signed certificate, in years.
const YEARS: i32 = 20;

/// Source of the API's TLS certificate.
#[derive(Clone, Debug)]
pub enum Place {
    /// Configured PEM files: a file with the certificate and its chain, and a file with its key.
    Given(PathBuf, PathBuf),
    /// Self-signed certificate for these names and addresses, stored in a directory. Without a directory it
    /// is lost when the router ends.
    Own(Option<PathBuf>, Vec<String>),
}

/// Certificate in use. A configured certificate is read again when its files change.
#[derive(Debug)]
pub(crate) struct Certificate {
    place: Place,
    used: RwLock<Used>,
    /// Whether the expiry of the certificate in use was already reported.
    is_told: AtomicBool,
}

#[derive(Debug)]
struct Used {
    /// Certificate and key; `None` if the configured certificate has expired, in which case no TLS client can
    /// connect.
    key: Option<Arc<CertifiedKey>>,
    /// Stamps of certificate and key file when they were last read; `None` for a self-signed certificate.
    changed: Option<[Stamp; 2]>,
}

/// Stamp of a file, which changes with the content: inode, length, and times of modification and status
/// change (seconds, nanoseconds).
type Stamp = (u64, u64, [i64; 4]);

impl Certificate {
    /// Reads or generates the certificate. If a configured certificate has expired, the router still starts
    /// and logs the expiry, but no TLS client can connect.
    ///
    /// # Errors
    /// Returns an error if a file can't be read or written, or if certificate and key don't match.
    pub fn open(place: Place) -> Result<Self, ApiError> {
        let (changed, key) = match &place {
            Place::Given(chain, key) => (stamps(chain, key), read(chain, key)),
            Place::Own(None, names) => (None, parsed(&make(names, None)?, Path::new("(generated)"))),
            Place::Own(Some(directory), names) => (None, own(directory, names)),
        };
        let key = match key {
            Ok(key) => Some(key),
            Err(error @ ApiError::Expired { .. }) => {
                tracing::error!("TLS clients can't connect: {error}");
                None
            }
            Err(error) => return Err(error),
        };
        Ok(Self { place, used: RwLock::new(Used { key, changed }), is_told: AtomicBool::new(false) })
    }

    /// Returns the SHA-256 fingerprint of the certificate, as openssl and browsers write it; `None` if the
    /// configured certificate has expired.
    pub fn fingerprint(&self) -> Option<String> {
        let key = self.key()?;
        let digest = key.cert.first().map(Sha256::digest).unwrap_or_default();
        Some(digest.iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":"))
    }

    /// Returns the time of expiry of the certificate in use, UTC; `None` if it can't be read.
    pub fn holds_until(&self) -> Option<String> {
        self.end().map(utc)
    }

    /// Returns the time of expiry of the certificate in use, in seconds since 1970.
    fn end(&self) -> Option<u64> {
        end_of(&self.key()?.cert)
    }

    /// Returns the time of expiry, UTC, at the first call after the certificate in use has expired; else
    /// `None`.
    pub fn tell_expired(&self) -> Option<String> {
        let end = self.end().filter(|end| *end < now().as_secs());
        match end {
            None => self.is_told.store(false, Ordering::Relaxed),
            Some(_) if self.is_told.swap(true, Ordering::Relaxed) => return None,
            Some(_) => {}
        }
        end.map(utc)
    }

    /// Reads a configured certificate again if its files have changed. Returns whether it did.
    ///
    /// # Errors
    /// Returns an error if the files can't be read, if certificate and key don't match, or if the new
    /// certificate has expired. The old certificate then stays in use until the files change again.
    pub fn renew(&self) -> Result<bool, ApiError> {
        let Place::Given(chain, key) = &self.place else { return Ok(false) };
        let now = stamps(chain, key);
        if now.is_none() || now == self.used.read().unwrap_or_else(PoisonError::into_inner).changed {
            return Ok(false);
        }
        // Read the files before taking the lock, so that no TLS handshake waits for the disk.
        let read = read(chain, key);
        let mut used = self.used.write().unwrap_or_else(PoisonError::into_inner);
        used.changed = now;
        used.key = Some(read?);
        Ok(true)
    }

    fn key(&self) -> Option<Arc<CertifiedKey>> {
        self.used.read().unwrap_or_else(PoisonError::into_inner).key.clone()
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.key()
    }
}

fn stamps(chain: &Path, key: &Path) -> Option<[Stamp; 2]> {
    let stamp = |path: &Path| -> Option<Stamp> {
        let about = fs::metadata(path).ok()?;
        let times = [about.mtime(), about.mtime_nsec(), about.ctime(), about.ctime_nsec()];
        Some((about.ino(), about.len(), times))
    };
    Some([stamp(chain)?, stamp(key)?])
}

/// Returns the time since 1970.
fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Returns the time of expiry of a certificate, in seconds since 1970. To find it, validates the certificate
/// for a time in the far future: the resulting error contains the time of expiry.
fn end_of(chain: &[CertificateDer<'_>]) -> Option<u64> {
    let certificate = ParsedCertificate::try_from(chain.first()?).ok()?;
    let known = rustls::crypto::ring::default_provider().signature_verification_algorithms.all;
    let late = UnixTime::since_unix_epoch(Duration::from_secs(u64::from(u32::MAX) * 100));
    let checked =
        verify_server_cert_signed_by_trust_anchor(&certificate, &RootCertStore::empty(), &[], late, known);
    match checked {
        Err(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            Some(not_after.as_secs())
        }
        _ => None,
    }
}

/// Checks whether configured certificate files can be used. The error names a setting of `[api]`:
/// `certificate` or `key` for an unreadable file, `certificate` for invalid contents.
///
/// # Errors
/// The errors of [`Certificate::open`], and [`ApiError::Expired`].
pub(crate) fn check(chain: &Path, key: &Path) -> Result<(), (&'static str, ApiError)> {
    let text = |name, path| fs::read(path).map_err(|error| (name, ApiError::system(READ, path)(error)));
    let texts = [text("certificate", chain)?, text("key", key)?];
    parsed(&texts, chain).map(drop).map_err(|error| ("certificate", error))
}

fn read(chain: &Path, key: &Path) -> Result<Arc<CertifiedKey>, ApiError> {
    let text = |path: &Path| fs::read(path).map_err(ApiError::system(READ, path));
    parsed(&[text(chain)?, text(key)?], chain)
}

/// Parses a certificate chain and its key, both in PEM.
fn parsed([chain, key]: &[Vec<u8>; 2], path: &Path) -> Result<Arc<CertifiedKey>, ApiError> {
    let wrong = |why: String| ApiError::Certificate { path: path.to_owned(), why };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<_, _>>()
        .map_err(|error| wrong(format!("the certificate is not in PEM format: {error}")))?;
    if chain.is_empty() {
        return Err(wrong("the file has no certificate in PEM format".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| wrong(format!("the key is not in PEM format: {error}")))?;
    let provider = rustls::crypto::ring::default_provider();
    let certified =
        CertifiedKey::from_der(chain, key, &provider).map_err(|error| wrong(error.to_string()))?;
    if let Some(end) = end_of(&certified.cert).filter(|end| *end < now().as_secs()) {
        return Err(ApiError::Expired { path: path.to_owned(), since: utc(end) });
    }
    Ok(Arc::new(certified))
}

/// Returns the self-signed certificate: the stored one if it is valid for all `names`. Otherwise generates
/// and stores a certificate. Reuses a stored key.
fn own(directory: &Path, names: &[String]) -> Result<Arc<CertifiedKey>, ApiError> {
    let [chain, key] = OWN.map(|name| directory.join(name));
    let old_key = fs::read(&key).ok();
    if let (Ok(text), Some(old_key)) = (fs::read(&chain), &old_key)
        && is_for(&text, names)
        && let Ok(certified) = parsed(&[text, old_key.clone()], &chain)
    {
        return Ok(certified);
    }
    let made = make(names, old_key.as_deref())?;
    let failed = ApiError::system("create the directory", directory);
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
    // Write the key first: a certificate without its key is useless.
    write(&key, &made[1], 0o600)?;
    write(&chain, &made[0], 0o644)?;
    parsed(&made, &chain)
}

/// Whether a self-signed certificate covers all `names`.
fn is_for(text: &[u8], names: &[String]) -> bool {
    let text = String::from_utf8_lossy(text);
    let said = text.lines().find_map(|line| line.strip_prefix(NAMES));
    said.is_some_and(|said| names.iter().all(|name| said.split(' ').any(|one| one == name)))
}

/// Generates a self-signed certificate for `names`, with the old key if it is usable. Returns certificate and
/// key as PEM.
fn make(names: &[String], old_key: Option<&[u8]>) -> Result<[Vec<u8>; 2], ApiError> {
    let failed = |error: rcgen::Error| ApiError::OwnCertificate { why: error.to_string() };
    let old = old_key.and_then(|text| KeyPair::from_pem(&String::from_utf8_lossy(text)).ok());
    let key = old.map_or_else(KeyPair::generate, Ok).map_err(failed)?;
    let mut params = CertificateParams::new(names.to_vec()).map_err(failed)?;
    params.distinguished_name = DistinguishedName::new();
    let name = names.first().map_or("millrace", String::as_str);
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    // Use 2026 at least: at the first start of a machine, its clock may show an earlier year.
    let year = (1970 + (now().as_secs() / 31_556_952) as i32).max(2026);
    params.not_before = rcgen::date_time_ymd(2026, 1, 1);
    params.not_after = rcgen::date_time_ymd(year + YEARS, 1, 1);
    let made = params.self_signed(&key).map_err(failed)?;
    let text = format!("{NAMES}{}\n{}", names.join(" "), made.pem());
    Ok([text.into_bytes(), key.serialize_pem().into_bytes()])
}

fn write(path: &Path, text: &[u8], mode: u32) -> Result<(), ApiError> {
    let failed = |error| ApiError::system("write", path)(error);
    let beside = path.with_extension("new");
    let _ = fs::remove_file(&beside);
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside).map_err(failed)?;
    file.write_all(text).and_then(|()| file.sync_all()).map_err(failed)?;
    fs::rename(&beside, path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::test_directory::TestDirectory;

    #[test]
    fn own_certificate_stays_until_its_names_change() {
        let directory = TestDirectory::new();
        let state = directory.join("state");
        let open = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            Certificate::open(Place::Own(Some(state.clone()), names)).unwrap().fingerprint().unwrap()
        };
        let first = open(&["router", "127.0.0.1"]);
        assert_eq!(first.len(), 32 * 3 - 1, "{first}");
        assert_eq!(open(&["router"]), first);
        let key = fs::read(state.join("interface.key")).unwrap();
        assert_ne!(open(&["router", "fd00::1"]), first);
        assert_eq!(fs::read(state.join("interface.key")).unwrap(), key);
        let mode = |name: &str| fs::metadata(state.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("interface.key"), mode("interface.crt")), (0o600, 0o644));
    }

    /// Generates a certificate that expires on the first day of `year`, and its key.
    fn ended(year: i32) -> [String; 2] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["router".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(year - 1, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        [params.self_signed(&key).unwrap().pem(), key.serialize_pem()]
    }

    #[test]
    fn expired_certificate_is_refused_with_its_expiry() {
        let directory = TestDirectory::new();
        let (chain, key) = (directory.join("c.pem"), directory.join("k.pem"));
        let put = |[made, its_key]: [&[u8]; 2]| {
            fs::write(&chain, made).unwrap();
            fs::write(&key, its_key).unwrap();
        };
        let [old, old_key] = ended(2025);
        put([old.as_bytes(), old_key.as_bytes()]);
        let certificate = Certificate::open(Place::Given(chain.clone(), key.clone())).unwrap();
        assert!(certificate.fingerprint().is_none() && certificate.key().is_none());
        assert!(!certificate.renew().unwrap(), "it is not told again and again");
        let good = make(&["a".to_owned()], None).unwrap();
        put([&good[0], &good[1]]);
        assert!(certificate.renew().unwrap());
        let in_use = certificate.fingerprint();
        assert!(in_use.is_some() && certificate.tell_expired().is_none());
        assert!(certificate.holds_until().unwrap().starts_with("20"), "{:?}", certificate.holds_until());
        put([old.as_bytes(), old_key.as_bytes()]);
        let error = certificate.renew().unwrap_err();
        assert!(matches!(error, ApiError::Expired { .. }), "{error:?}");
        let said = error.to_string();
        assert!(said.contains("c.pem") && said.contains("expired 2025-01-01"), "{said}");
        assert_eq!(certificate.fingerprint(), in_use);
    }

    #[test]
    fn partly_written_key_is_not_loaded() {
        let directory = TestDirectory::new();
        let (chain, key) = (directory.join("c.pem"), directory.join("k.pem"));
        let first = make(&["a".to_owned()], None).unwrap();
        fs::write(&chain, &first[0]).unwrap();
        fs::write(&key, &first[1]).unwrap();
        let certificate = Certificate::open(Place::Given(chain.clone(), key.clone())).unwrap();
        let before = certificate.fingerprint();
        let [made, its_key] = make(&["b".to_owned()], None).unwrap();
        fs::write(&chain, &made).unwrap();
        assert!(certificate.renew().is_err(), "it is not this key's");
        // Write the key in parts, so quickly that the times of the file may stay the same.
        for length in [0, 1, its_key.len() / 2, its_key.len() - 2] {
            fs::write(&key, &its_key[..length]).unwrap();
            assert!(certificate.renew().is_err(), "{length}");
            assert_eq!(certificate.fingerprint(), before, "{length}");
        }
        fs::write(&key, &its_key).unwrap();
        assert!(certificate.renew().unwrap());
        assert_ne!(certificate.fingerprint(), before);
    }

    #[test]
    fn configured_certificate_is_reloaded_and_kept_if_the_new_one_is_invalid() {
        let directory = TestDirectory::new();
        let (chain, key) = (directory.join("c.pem"), directory.join("k.pem"));
        let put = |name: &str| {
            let [made, its_key] = make(&[name.to_owned()], None).unwrap();
            fs::write(&chain, made).unwrap();
            fs::write(&key, its_key).unwrap();
            // Advance the file time by whole seconds, so that it surely changes.
            let later = SystemTime::now() + std::time::Duration::from_secs(name.len() as u64);
            fs::File::open(&chain).unwrap().set_modified(later).unwrap();
        };
        assert!(matches!(
            Certificate::open(Place::Given(chain.clone(), key.clone())),
            Err(ApiError::System { .. })
        ));
        put("a");
        let certificate = Certificate::open(Place::Given(chain.clone(), key.clone())).unwrap();
        let first = certificate.fingerprint();
        assert!(!certificate.renew().unwrap());
        put("bb");
        assert!(certificate.renew().unwrap());
        let second = certificate.fingerprint();
        assert_ne!(first, second);
        fs::write(&key, "nonsense").unwrap();
        assert!(certificate.renew().is_err());
        assert_eq!(certificate.fingerprint(), second);
        let [other, _] = make(&["c".into()], None).unwrap();
        let [_, strange] = make(&["d".into()], None).unwrap();
        fs::write(&chain, other).unwrap();
        fs::write(&key, strange).unwrap();
        let wrong = Certificate::open(Place::Given(chain, key)).unwrap_err();
        assert!(matches!(wrong, ApiError::Certificate { .. }), "{wrong}");
    }
}
