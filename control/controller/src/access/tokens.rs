//! API tokens for remote access: each authenticates a caller and grants a role.
//!
//! The text of a token is shown only once, in the answer to its creation. A file beside the revisions keeps
//! only the SHA-256 hash of the text. The text has 256 random bits, so a slower hash would add no protection
//! against guessing. A check compares the hash of the sent text with all stored hashes in constant time.

use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use millrace_config::{Role, Time};
use millrace_repository::Notebook;
use millrace_store::Who;
use millrace_telemetry::utc;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::ControlError;
use crate::events::since_1970;
use crate::show::hexadecimal;
use crate::view::{CreatedTokenView, TokenView};

/// Name of the token file.
const FILE: &str = "tokens.json";
/// Prefix of every token, so that secret scanners find tokens in texts.
const PREFIX: &str = "millrace_";
/// Number of random bytes of a token.
const SECRET: usize = 32;
/// Maximum number of tokens.
const MOST: usize = 1000;
/// Maximum length of a token's name, in bytes.
const MOST_NAME: usize = 64;
/// Validity of a token that expires: 1 s to a hundred years.
pub type TokenTime = Time<1_000_000, { 100 * 366 * 86_400_000_000 }>;

/// Token to create.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// Name of the token: letters, digits, dots, hyphens and underscores, 64 at most.
    pub name: String,
    /// Role that the token grants.
    pub role: Role,
    /// Time until the token expires, 1 s to a hundred years: `12h`, `30d`; without it the token does not
    /// expire.
    pub expires: Option<TokenTime>,
}

/// Token as stored in the token file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    name: String,
    role: Role,
    /// SHA-256 of the token, in hexadecimal digits.
    hash: String,
    /// Time of creation. All times in this file are seconds since 1970.
    created: u64,
    created_by: Who,
    expires: Option<u64>,
    used: Option<u64>,
    used_from: Option<IpAddr>,
}

/// Valid token in memory, against which requests are checked.
#[derive(Debug)]
struct Known {
    hash: [u8; 32],
    name: String,
    role: Role,
    expires: Option<u64>,
    used: AtomicU64,
    used_from: Mutex<Option<IpAddr>>,
}

/// Caller that authenticated with a valid token.
#[derive(Clone, Debug)]
pub struct Holder(Arc<Known>);

impl Holder {
    /// Returns the name of the token.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the role that the token grants.
    pub fn role(&self) -> Role {
        self.0.role
    }
}

/// All tokens. Clones share the same tokens.
#[derive(Clone, Debug)]
pub struct Tokens(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    book: Mutex<Notebook<Kept>>,
    /// Valid tokens in memory. Checks read this copy, so they never wait for the disk.
    known: RwLock<Vec<Arc<Known>>>,
}

impl Default for Tokens {
    /// Creates an empty list without a file: new tokens are lost when the router ends.
    fn default() -> Self {
        Self::open(None)
    }
}

impl Tokens {
    /// Opens the token file in a folder, which need not exist yet. Without a folder, tokens are lost when the
    /// router ends.
    pub fn open(directory: Option<&Path>) -> Self {
        let book = Notebook::open(directory, FILE);
        let known = RwLock::new(book.entries().iter().filter_map(known).collect());
        Self(Arc::new(Shared { book: Mutex::new(book), known }))
    }

    /// Returns the reason why the token file could not be read; `None` if it was read. No token is valid
    /// while the file is unreadable.
    pub fn damage(&self) -> Option<String> {
        self.book().damage().map(|damage| format!("no API token is valid: {damage}"))
    }

    fn book(&self) -> MutexGuard<'_, Notebook<Kept>> {
        // No panic leaves the tokens half changed, so a poisoned lock is harmless.
        self.0.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> Vec<Arc<Known>> {
        self.0.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Creates a token.
    pub(crate) fn create(&self, new: &NewToken, who: &Who) -> Result<CreatedTokenView, ControlError> {
        let now = now();
        check(new)?;
        let mut book = self.book();
        if book.entries().iter().any(|kept| kept.name == new.name) {
            let text = format!(
                "token {:?} already exists: give another name, or revoke the existing token",
                new.name
            );
            return Err(ControlError::conflict(text));
        }
        if book.entries().len() >= MOST {
            let text = format!("the limit of {MOST} tokens is reached: revoke unused tokens");
            return Err(ControlError::conflict(text));
        }
        let token = secret()?;
        let kept = Kept {
            name: new.name.clone(),
            role: new.role,
            hash: hexadecimal(&hash(&token)),
            created: now,
            created_by: who.clone(),
            expires: new.expires.map(|time| now + time.duration().as_secs()),
            used: None,
            used_from: None,
        };
        let about = view(&kept, now);
        self.change(&mut book, |entries| entries.push(kept))?;
        Ok(CreatedTokenView { about, token })
    }

    /// Returns all tokens, by name.
    pub(crate) fn list(&self) -> Vec<TokenView> {
        let (now, uses) = (now(), self.uses());
        let mut all: Vec<TokenView> =
            self.book().entries().iter().map(|kept| view(&with_use(kept.clone(), &uses), now)).collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// Revokes a token: from now on it authenticates nobody.
    pub(crate) fn revoke(&self, name: &str) -> Result<TokenView, ControlError> {
        let uses = self.uses();
        let mut book = self.book();
        let Some(kept) = book.entries().iter().find(|kept| kept.name == name).cloned() else {
            let names = book.entries().iter().map(|kept| kept.name.as_str());
            return Err(ControlError::unknown("token", name, names));
        };
        self.change(&mut book, |entries| entries.retain(|kept| kept.name != name))?;
        Ok(view(&with_use(kept, &uses), now()))
    }

    /// Returns the holder of the token `sent` and records this use; `None` if the token is unknown or has
    /// expired.
    pub fn check(&self, sent: &str, from: IpAddr) -> Option<Holder> {
        let sent = hash(sent);
        let (now, known) = (now(), self.0.known.read().unwrap_or_else(PoisonError::into_inner));
        let mut found = None;
        for one in known.iter() {
            if bool::from(one.hash.ct_eq(&sent)) {
                found = Some(one.clone());
            }
        }
        let holder = found.filter(|one| one.expires.is_none_or(|end| now < end)).map(Holder)?;
        holder.0.used.store(now, Ordering::Relaxed);
        *holder.0.used_from.lock().unwrap_or_else(PoisonError::into_inner) = Some(from);
        Some(holder)
    }

    /// Whether the token of `holder` still exists and has not expired.
    pub fn holds(&self, holder: &Holder) -> bool {
        let known = self.0.known.read().unwrap_or_else(PoisonError::into_inner);
        holder.0.expires.is_none_or(|end| now() < end) && known.iter().any(|one| one.hash == holder.0.hash)
    }

    /// Writes the last use of each token to the file. Does nothing unless the last use of a token is at least
    /// a minute newer than the stored time.
    pub fn keep_uses(&self) -> Result<(), ControlError> {
        let uses = self.uses();
        let mut book = self.book();
        let old = |kept: &Kept| {
            let used = uses.iter().find(|(name, ..)| *name == kept.name).map_or(0, |(_, used, _)| *used);
            // A damaged file may contain any time, so the addition saturates.
            used >= kept.used.unwrap_or(0).saturating_add(60)
        };
        if !book.is_kept() || !book.entries().iter().any(old) {
            return Ok(());
        }
        // Recording uses never replaces a damaged token file; only creating or revoking tokens does.
        if let Some(problem) = book.problem() {
            return Err(ControlError::System(problem));
        }
        self.change(&mut book, |entries| {
            entries.iter_mut().for_each(|kept| *kept = with_use(kept.clone(), &uses));
        })
    }

    /// Returns token name, time and client address of each last use that this router has seen.
    fn uses(&self) -> Vec<(String, u64, Option<IpAddr>)> {
        let seen = |one: Arc<Known>| {
            let from = *one.used_from.lock().unwrap_or_else(PoisonError::into_inner);
            (one.name.clone(), one.used.load(Ordering::Relaxed), from)
        };
        self.known().into_iter().map(seen).filter(|(_, used, _)| *used > 0).collect()
    }

    fn change(
        &self,
        book: &mut Notebook<Kept>,
        change: impl FnOnce(&mut Vec<Kept>),
    ) -> Result<(), ControlError> {
        book.change(change).map_err(|error| ControlError::system("store the API tokens", error))?;
        let before = self.known();
        let same = |kept: &Kept| {
            let one = known(kept)?;
            Some(before.iter().find(|known| known.hash == one.hash).cloned().unwrap_or(one))
        };
        let after = book.entries().iter().filter_map(same).collect();
        *self.0.known.write().unwrap_or_else(PoisonError::into_inner) = after;
        Ok(())
    }
}

fn check(new: &NewToken) -> Result<(), ControlError> {
    let right = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if new.name.is_empty() || new.name.len() > MOST_NAME || !new.name.chars().all(right) {
        let text = format!(
            "invalid token name {:?}: give 1 to {MOST_NAME} letters, digits, dots, hyphens and underscores",
            new.name
        );
        return Err(ControlError::invalid(text));
    }
    Ok(())
}

/// Generates the random text of a new token.
fn secret() -> Result<String, ControlError> {
    let mut bytes = [0; SECRET];
    getrandom::fill(&mut bytes).map_err(|error| ControlError::system("get random bytes", error))?;
    Ok(format!("{PREFIX}{}", hexadecimal(&bytes)))
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let digits: Option<Vec<u8>> = (0..32)
        .map(|at| text.get(2 * at..2 * at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok()))
        .collect();
    digits?.try_into().ok()
}

/// Returns a stored token for checks; `None` if its hash is unreadable.
fn known(kept: &Kept) -> Option<Arc<Known>> {
    Some(Arc::new(Known {
        hash: from_hex(&kept.hash)?,
        name: kept.name.clone(),
        role: kept.role,
        expires: kept.expires,
        used: AtomicU64::new(kept.used.unwrap_or(0)),
        used_from: Mutex::new(kept.used_from),
    }))
}

fn with_use(kept: Kept, uses: &[(String, u64, Option<IpAddr>)]) -> Kept {
    match uses.iter().find(|(name, ..)| *name == kept.name) {
        Some((_, used, from)) => Kept { used: Some(*used), used_from: *from, ..kept },
        None => kept,
    }
}

fn view(kept: &Kept, now: u64) -> TokenView {
    TokenView {
        name: kept.name.clone(),
        role: kept.role,
        created: utc(kept.created),
        created_by: kept.created_by.clone(),
        expires: kept.expires.map(utc),
        expired: kept.expires.is_some_and(|end| now >= end),
        used: kept.used.map(utc),
        used_from: kept.used_from.map(|from| from.to_string()),
    }
}

/// Returns the seconds since 1970.
fn now() -> u64 {
    since_1970().as_secs()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn new(name: &str) -> NewToken {
        NewToken { name: name.into(), role: Role::Operator, expires: None }
    }

    #[test]
    fn token_is_valid_until_revoked_and_stored_as_a_hash() {
        let folder = std::env::temp_dir().join(format!("millrace-tokens-{}", std::process::id()));
        let tokens = Tokens::open(Some(&folder));
        let made = tokens.create(&new("ci"), &Who::router()).unwrap();
        assert!(made.token.starts_with(PREFIX) && made.token.len() == PREFIX.len() + 64, "{}", made.token);
        let kept = std::fs::read_to_string(folder.join(FILE)).unwrap();
        assert!(!kept.contains(&made.token) && !kept.contains(&made.token[PREFIX.len()..]), "{kept}");
        // The token is valid after a restart too.
        let again = Tokens::open(Some(&folder));
        for tokens in [&tokens, &again] {
            let holder = tokens.check(&made.token, HERE).unwrap();
            assert_eq!((holder.name(), holder.role()), ("ci", Role::Operator));
            assert!(tokens.holds(&holder));
            for wrong in ["", "millrace_", &made.token[1..], &made.token.to_uppercase()] {
                assert!(tokens.check(wrong, HERE).is_none(), "{wrong}");
            }
        }
        again.keep_uses().unwrap();
        assert_eq!(Tokens::open(Some(&folder)).list()[0].used_from.as_deref(), Some("127.0.0.1"));
        let holder = again.check(&made.token, HERE).unwrap();
        again.revoke("ci").unwrap();
        assert!(again.check(&made.token, HERE).is_none() && !again.holds(&holder));
        assert!(matches!(again.revoke("ci"), Err(ControlError::NotFound(_))));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_token_file_may_name_any_time() {
        let folder = std::env::temp_dir().join(format!("millrace-token-times-{}", std::process::id()));
        Tokens::open(Some(&folder)).create(&new("a"), &Who::router()).unwrap();
        let file = folder.join(FILE);
        let kept = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, kept.replace("\"used\":null", &format!("\"used\":{}", u64::MAX))).unwrap();
        let tokens = Tokens::open(Some(&folder));
        assert!(tokens.list()[0].used.is_some());
        tokens.keep_uses().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn names_are_unique_and_plain_and_tokens_end() {
        let tokens = Tokens::default();
        let made = tokens
            .create(&NewToken { expires: Some("1s".parse().unwrap()), ..new("a") }, &Who::router())
            .unwrap();
        assert!(matches!(tokens.create(&new("a"), &Who::router()), Err(ControlError::Conflict(_))));
        for wrong in ["", "a b", "ä", "a/b", &"x".repeat(65)] {
            assert!(matches!(tokens.create(&new(wrong), &Who::router()), Err(ControlError::Invalid(_))));
        }
        for wrong in ["0s", "101y", "60"] {
            assert!(wrong.parse::<TokenTime>().is_err(), "{wrong}");
        }
        let holder = tokens.check(&made.token, HERE).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1100));
        assert!(tokens.check(&made.token, HERE).is_none() && !tokens.holds(&holder));
        assert!(tokens.list()[0].expired);
    }
}
