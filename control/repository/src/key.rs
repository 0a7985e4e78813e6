//! Keys in the format of `minisign`.

use std::fmt;
use std::str::FromStr;

use ct_codecs::{Base64, Decoder as _};

use crate::{KeyId, RepositoryError};

/// Public key, for checking signatures.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublicKey {
    id: KeyId,
    text: String,
    pub(crate) key: minisign_verify::PublicKey,
}

impl PublicKey {
    /// Returns the id of the key.
    pub fn id(&self) -> KeyId {
        self.id
    }
}

impl FromStr for PublicKey {
    type Err = RepositoryError;

    /// Parses the base64 line of 56 characters in a `.pub` file.
    fn from_str(text: &str) -> Result<Self, RepositoryError> {
        let text = text.trim();
        let wrong = || RepositoryError::PublicKey { text: text.chars().take(64).collect() };
        let key = minisign_verify::PublicKey::from_base64(text).map_err(|_| wrong())?;
        let named = minisign::PublicKey::from_base64(text).map_err(|_| wrong())?;
        if named.to_base64() != text {
            return Err(wrong());
        }
        Ok(Self { id: KeyId::of(named.keynum()), text: text.to_owned(), key })
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Secret key, for signing. Its text is never shown.
pub struct SecretKey(pub(crate) minisign::SecretKey);

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretKey").field("id", &self.id()).finish_non_exhaustive()
    }
}

/// Reason why a secret key can't be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SecretKeyProblem {
    /// The key needs a password.
    #[error("the key is protected by a password")]
    Protected,
    /// The text is no secret key, or the key is damaged.
    #[error("{0}")]
    Other(String),
}

/// Size of a secret key in bytes. Bytes 2 and 3 name its protection (password or none); the last 32 bytes are
/// its checksum.
const SECRET_BYTES: usize = 158;

/// Reads a key made by `minisign -G -W`: it has no password, and its checksum is zero.
fn without_checksum(text: &str) -> Option<minisign::SecretKey> {
    let bytes = Base64::decode_to_vec(text.lines().nth(1)?, None).ok()?;
    let plain = bytes.len() == SECRET_BYTES && bytes.starts_with(b"Ed\0\0");
    let unchecked = plain && bytes[SECRET_BYTES - 32..].iter().all(|byte| *byte == 0);
    unchecked.then(|| minisign::SecretKey::from_bytes(&bytes).ok()).flatten()
}

impl FromStr for SecretKey {
    type Err = SecretKeyProblem;

    /// Parses the two lines of a secret key file.
    fn from_str(text: &str) -> Result<Self, SecretKeyProblem> {
        if let Some(key) = without_checksum(text) {
            return Ok(Self(key));
        }
        let boxed = minisign::SecretKeyBox::from(text.to_owned());
        boxed.into_unencrypted_secret_key().map(Self).map_err(|error| match error.to_string() {
            text if text.contains("encrypted") => SecretKeyProblem::Protected,
            text => SecretKeyProblem::Other(text),
        })
    }
}

impl SecretKey {
    /// Generates a key from the system's random numbers.
    pub fn generate() -> Result<Self, RepositoryError> {
        let pair = minisign::KeyPair::generate_unencrypted_keypair();
        pair.map(|pair| Self(pair.sk)).map_err(failed("generate a key pair"))
    }

    /// Returns the two lines of the key file. They contain the secret.
    pub(crate) fn text(&self) -> Result<String, RepositoryError> {
        let boxed = self.0.to_box(Some("millrace secret key, without a password"));
        boxed.map(String::from).map_err(failed("encode the secret key"))
    }

    /// Returns the id of the key.
    pub fn id(&self) -> KeyId {
        KeyId::of(self.0.keynum())
    }

    /// Returns the matching public key.
    pub fn public(&self) -> Result<PublicKey, RepositoryError> {
        let key = minisign::PublicKey::from_secret_key(&self.0).map_err(failed("derive the public key"))?;
        key.to_base64().parse()
    }
}

/// Returns a function that converts errors of the operation `what`.
pub(crate) fn failed(what: &'static str) -> impl FnOnce(minisign::PError) -> RepositoryError {
    move |error| RepositoryError::Signing { what, problem: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_key_round_trips_as_text() {
        let key = SecretKey::generate().unwrap();
        let public = key.public().unwrap();
        assert_eq!((public.id(), public.to_string().len()), (key.id(), 56));
        assert!(public.to_string().starts_with("RW"));
        assert_eq!(public.to_string().parse::<PublicKey>().unwrap(), public);
        assert!(!format!("{key:?}").contains(&public.to_string()));
    }

    #[test]
    fn invalid_public_key_is_refused() {
        let text = SecretKey::generate().unwrap().public().unwrap().to_string();
        for wrong in ["", "RW", "größe", &text[..55], &format!("{text}A"), &text.replacen("RW", "QW", 1)] {
            assert!(wrong.parse::<PublicKey>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn secret_key_round_trips() {
        let key = SecretKey::generate().unwrap();
        assert_eq!(key.text().unwrap().parse::<SecretKey>().unwrap().id(), key.id());
        for wrong in ["", "one line", "two\nlines", "untrusted comment: x\nRWQAAAA="] {
            assert!(matches!(wrong.parse::<SecretKey>(), Err(SecretKeyProblem::Other(_))), "{wrong}");
        }
        let pair = minisign::KeyPair::generate_unencrypted_keypair().unwrap();
        let mut unchecked = pair.sk.to_bytes();
        unchecked[SECRET_BYTES - 32..].fill(0);
        let text = minisign::SecretKey::from_bytes(&unchecked).unwrap().to_box(None).unwrap().to_string();
        assert_eq!(text.parse::<SecretKey>().unwrap().id(), KeyId::of(pair.sk.keynum()));
        let mut bytes = pair.sk.to_bytes();
        // Claim a password protection: `Sc` stands for scrypt.
        bytes[2..4].copy_from_slice(b"Sc");
        let text = minisign::SecretKey::from_bytes(&bytes).unwrap().to_box(None).unwrap().to_string();
        assert!(matches!(text.parse::<SecretKey>(), Err(SecretKeyProblem::Protected)));
    }
}
