//! Signatures: the four lines of a `.minisig` file.
//!
//! The first line of such a file is not signed, so anybody could change it unnoticed. Therefore Millrace
//! accepts only the first lines that the known signing tools write. No part of the file stays unchecked.

use crate::key::failed;
use crate::{Claims, KeyId, RepositoryError, SecretKey, Untrusted};

/// Maximum size of a signature file, in bytes.
pub const MOST_SIGNATURE: usize = 4096;

/// Accepted first lines: of `minisign` and Millrace, and of `rsign`.
const UNTRUSTED: [&str; 2] = [
    "untrusted comment: signature from minisign secret key",
    "untrusted comment: signature from rsign secret key",
];
/// Start of the third line, before the trusted comment.
const TRUSTED: &str = "trusted comment: ";

/// Well-formed signature, not yet verified.
pub(crate) struct Signature {
    /// Id of the key that the signature names, not yet verified.
    pub key: KeyId,
    /// Trusted comment.
    pub comment: String,
    /// The four lines, as the verifying library takes them.
    pub lines: minisign_verify::Signature,
}

impl Signature {
    /// Reads a signature file.
    ///
    /// # Errors
    /// [`Untrusted::Form`] unless the file is byte for byte as a signing tool writes it.
    pub fn read(file: &[u8]) -> Result<Self, Untrusted> {
        if file.len() > MOST_SIGNATURE {
            return Err(Untrusted::Form("the file has more than 4096 bytes"));
        }
        let plain = |byte: &u8| *byte == b'\n' || (0x20..0x7f).contains(byte);
        let text = std::str::from_utf8(file).ok().filter(|text| text.as_bytes().iter().all(plain));
        let text = text.ok_or(Untrusted::Form("the file is not plain ASCII text"))?;
        let lines: Vec<&str> = text.strip_suffix('\n').unwrap_or(text).split('\n').collect();
        let [untrusted, _, comment, _] = lines[..] else {
            return Err(Untrusted::Form("the file does not have four lines, as minisign writes"));
        };
        if !UNTRUSTED.contains(&untrusted) {
            return Err(Untrusted::Form(
                "line 1 is not \"untrusted comment: signature from minisign secret key\"",
            ));
        }
        let comment = comment
            .strip_prefix(TRUSTED)
            .ok_or(Untrusted::Form("line 3 does not begin with \"trusted comment: \""))?;
        let broken = Untrusted::Form("line 2 or 4 is no signature");
        let named = minisign::SignatureBox::from_string(text).map_err(|_| broken.clone())?;
        let lines = minisign_verify::Signature::decode(text).map_err(|_| broken)?;
        Ok(Self { key: KeyId::of(named.keynum()), comment: comment.to_owned(), lines })
    }
}

/// Signs the bytes of a plugin. Returns the four lines of the signature file.
///
/// # Errors
/// [`RepositoryError::Signing`] if the system has no random numbers, or if the public and the secret part of
/// the key don't match.
pub fn sign(module: &[u8], claims: &Claims, key: &SecretKey) -> Result<String, RepositoryError> {
    let comment = claims.to_string();
    let untrusted = UNTRUSTED[0].trim_start_matches("untrusted comment: ");
    let public = minisign::PublicKey::from_secret_key(&key.0).map_err(failed("derive the public key"))?;
    let signed = minisign::sign(Some(&public), &key.0, module, Some(&comment), Some(untrusted));
    signed.map(String::from).map_err(failed("sign the plugin"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn signature() -> String {
        let claims = Claims { name: "a".into(), version: "1.0.0".into(), capabilities: vec!["log"] };
        sign(b"module", &claims, &SecretKey::generate().unwrap()).unwrap()
    }

    #[test]
    fn signature_names_its_purpose() {
        let key = SecretKey::generate().unwrap();
        let claims = Claims { name: "a".into(), version: "1.0.0".into(), capabilities: vec!["log"] };
        let read = Signature::read(sign(b"module", &claims, &key).unwrap().as_bytes()).unwrap();
        assert_eq!((read.key, read.comment), (key.id(), claims.to_string()));
    }

    #[test]
    fn other_forms_are_refused() {
        let good = signature();
        assert!(Signature::read(good.trim_end().as_bytes()).is_ok());
        for wrong in [
            String::new(),
            good.replace('\n', "\r\n"),
            format!("{good}\n"),
            format!("{good}more\n"),
            good.replace("from minisign", "from Minisign"),
            good.replace("trusted comment: millrace", "trusted comment:millrace"),
            good.lines().take(3).collect::<Vec<_>>().join("\n"),
            good.replace("log", "lög"),
            format!("{good}{}", " ".repeat(MOST_SIGNATURE)),
        ] {
            assert!(matches!(Signature::read(wrong.as_bytes()), Err(Untrusted::Form(_))), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = Signature::read(&bytes);
        }

        #[test]
        fn any_signature_lines_are_parsed_without_a_panic(second in "[A-Za-z0-9+/=]{0,120}", fourth in "[A-Za-z0-9+/=]{0,120}") {
            let text = format!("{}\n{second}\ntrusted comment: x\n{fourth}\n", UNTRUSTED[0]);
            let _ = Signature::read(text.as_bytes());
        }
    }
}
