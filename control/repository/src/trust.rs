//! Trusted keys, and the check of plugins against them.

use std::fmt;

use millrace_plugin::Manifest;

use crate::signature::Signature;
use crate::{Claims, KeyId, PublicKey, Untrusted};

/// Treatment of unsigned plugins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsigned {
    /// Unsigned plugins are loaded.
    Allow,
    /// Unsigned plugins are refused.
    Refuse,
}

/// Trusted keys, and whether plugins need a signature.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trust {
    keys: Vec<PublicKey>,
    unsigned: Unsigned,
}

/// Origin of a loaded plugin: unsigned, or the key that signed it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Unsigned, or signed while the router has no keys to check the signature.
    Unsigned,
    /// Signed by this key.
    Signed(KeyId),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned => f.write_str("unsigned"),
            Self::Signed(key) => write!(f, "signed by {key}"),
        }
    }
}

/// Plugin whose bytes have passed the check. [`fits`](Self::fits) then checks its manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct Checked {
    signed: Option<(KeyId, String)>,
}

impl Trust {
    /// Creates a trust with keys. Without `unsigned`, the router refuses unsigned plugins if there are keys,
    /// and loads them if there are none.
    pub fn new(keys: Vec<PublicKey>, unsigned: Option<Unsigned>) -> Self {
        let default = if keys.is_empty() { Unsigned::Allow } else { Unsigned::Refuse };
        Self { unsigned: unsigned.unwrap_or(default), keys }
    }

    /// Checks the bytes of a plugin, and its signature file if there is one, before the plugin is parsed. A
    /// present signature must be valid even if none is required. Without keys, a signature can't be checked
    /// and is ignored.
    pub fn check(&self, module: &[u8], signature: Option<&[u8]>) -> Result<Checked, Untrusted> {
        match signature {
            Some(file) if !self.keys.is_empty() => self.check_signature(module, &Signature::read(file)?),
            _ if self.unsigned == Unsigned::Allow => Ok(Checked { signed: None }),
            _ => Err(Untrusted::Unsigned),
        }
    }

    /// Whether a key is trusted.
    pub fn has(&self, key: KeyId) -> bool {
        self.keys.iter().any(|known| known.id() == key)
    }

    fn check_signature(&self, module: &[u8], signature: &Signature) -> Result<Checked, Untrusted> {
        let mut named = self.keys.iter().filter(|key| key.id() == signature.key).peekable();
        if named.peek().is_none() {
            return Err(Untrusted::UnknownKey(signature.key));
        }
        if named.any(|key| key.key.verify(module, &signature.lines, false).is_ok()) {
            return Ok(Checked { signed: Some((signature.key, signature.comment.clone())) });
        }
        Err(Untrusted::Changed(signature.key))
    }
}

impl Checked {
    /// Returns the origin of the plugin if its manifest matches the signed claims.
    pub fn fits(self, manifest: &Manifest) -> Result<Origin, Untrusted> {
        let Some((key, signed)) = self.signed else { return Ok(Origin::Unsigned) };
        let found = Claims::of(manifest).to_string();
        if signed == found { Ok(Origin::Signed(key)) } else { Err(Untrusted::OtherPlugin { signed, found }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SecretKey, sign};

    const MODULE: &[u8] = b"the bytes of a module";

    fn manifest(name: &str, capabilities: &str) -> Manifest {
        let json = format!(
            r#"{{"abi":1,"name":"{name}","version":"1.2.3","summary":"x","positions":["late"],"capabilities":{capabilities}}}"#
        );
        Manifest::parse(json.as_bytes()).unwrap()
    }

    fn signed(key: &SecretKey, manifest: &Manifest) -> String {
        sign(MODULE, &Claims::of(manifest), key).unwrap()
    }

    fn trusting(key: &SecretKey) -> Trust {
        Trust::new(vec![key.public().unwrap()], None)
    }

    #[test]
    fn plugin_signed_by_a_trusted_key_is_loaded() {
        let (key, manifest) = (SecretKey::generate().unwrap(), manifest("a", r#"["timer","log"]"#));
        let signature = signed(&key, &manifest);
        let checked = trusting(&key).check(MODULE, Some(signature.as_bytes())).unwrap();
        assert_eq!(checked.fits(&manifest), Ok(Origin::Signed(key.id())));
        assert_eq!(Origin::Signed(key.id()).to_string(), format!("signed by {}", key.id()));
    }

    #[test]
    fn changed_bit_of_module_or_signature_is_refused() {
        let (key, manifest) = (SecretKey::generate().unwrap(), manifest("a", "[]"));
        let (trust, signature) = (trusting(&key), signed(&key, &manifest).into_bytes());
        for bit in 0..signature.len() * 8 {
            let mut changed = signature.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(trust.check(MODULE, Some(&changed)).is_err(), "bit {bit} of the signature");
        }
        for bit in 0..MODULE.len() * 8 {
            let mut changed = MODULE.to_vec();
            changed[bit / 8] ^= 1 << (bit % 8);
            let refused = trust.check(&changed, Some(&signature));
            assert_eq!(refused, Err(Untrusted::Changed(key.id())), "bit {bit} of the module");
        }
    }

    #[test]
    fn other_keys_do_not_count() {
        let [key, other] = [(), ()].map(|()| SecretKey::generate().unwrap());
        let signature = signed(&other, &manifest("a", "[]"));
        let refused = trusting(&key).check(MODULE, Some(signature.as_bytes()));
        assert_eq!(refused, Err(Untrusted::UnknownKey(other.id())));
        let both = Trust::new(vec![key.public().unwrap(), other.public().unwrap()], None);
        assert!(both.check(MODULE, Some(signature.as_bytes())).is_ok());
    }

    #[test]
    fn signature_holds_for_one_name_and_its_capabilities() {
        let key = SecretKey::generate().unwrap();
        let signature = signed(&key, &manifest("a", r#"["log"]"#));
        for other in [manifest("b", r#"["log"]"#), manifest("a", r#"["log","timer"]"#), manifest("a", "[]")] {
            let checked = trusting(&key).check(MODULE, Some(signature.as_bytes())).unwrap();
            assert!(matches!(checked.fits(&other), Err(Untrusted::OtherPlugin { .. })));
        }
    }

    #[test]
    fn unsigned_plugins_are_a_matter_of_the_configuration() {
        let key = SecretKey::generate().unwrap();
        let public = || vec![key.public().unwrap()];
        let unsigned = Ok(Checked { signed: None });
        for (keys, said, loaded) in [
            (vec![], None, true),
            (public(), None, false),
            (vec![], Some(Unsigned::Refuse), false),
            (public(), Some(Unsigned::Allow), true),
        ] {
            let checked = Trust::new(keys, said).check(MODULE, None);
            assert_eq!(checked, if loaded { unsigned.clone() } else { Err(Untrusted::Unsigned) });
        }
        // Without keys, a signature is ignored; with a key, a signature must be valid.
        assert_eq!(Trust::new(vec![], None).check(MODULE, Some(b"any")), unsigned);
        assert!(Trust::new(public(), Some(Unsigned::Allow)).check(MODULE, Some(b"any")).is_err());
    }
}
