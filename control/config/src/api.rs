//! Who may ask over HTTP, and where.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Size;

/// The HTTP interface, beside its Unix socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Api {
    /// Addresses with ports at which it is served over TLS, to whoever has a token. Default: none.
    #[schemars(with = "Vec<String>")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listen: Vec<SocketAddr>,
    /// File with the certificate and those that vouch for it, in PEM. Default: one of the router's own making.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// File with the certificate's key, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// Names and addresses that the router's own certificate is for, beside the machine's name, `localhost` and those of `listen`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Groups whose members may use the Unix socket, and what they may do there. Default: none but root and the router's own
    /// user, who may do everything.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub groups: BTreeMap<String, Role>,
    /// Size of the file of the audit log, 64 KiB to 1 TiB; then another one is begun. Default 8 MiB.
    #[serde(skip_serializing_if = "is_usual_size")]
    pub audit_size: AuditSize,
    /// Files of the audit log, the one that is written among them, 1 to 100; the oldest goes. Default 5.
    #[serde(skip_serializing_if = "is_usual_number")]
    #[schemars(range(min = 1, max = 100))]
    pub audit_files: u32,
}

/// Size of a file of the audit log.
pub type AuditSize = Size<65_536, { 1 << 40 }>;

/// Size of a file of the audit log where none is configured.
const AUDIT_SIZE: AuditSize = Size::clamped(8 << 20);
/// Files of it.
const AUDIT_FILES: u32 = 5;

fn is_usual_size(size: &AuditSize) -> bool {
    *size == AUDIT_SIZE
}

fn is_usual_number(files: &u32) -> bool {
    *files == AUDIT_FILES
}

impl Default for Api {
    fn default() -> Self {
        let (listen, certificate, key, names, groups) = Default::default();
        Self { listen, certificate, key, names, groups, audit_size: AUDIT_SIZE, audit_files: AUDIT_FILES }
    }
}

/// What somebody may do. Each may also do what the one before may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// To look at what the router is and does.
    Viewer,
    /// To change where packets go and what is done with them, and to see packets.
    Operator,
    /// To load code, to apply configurations, and to say who may do what.
    Admin,
}

impl Role {
    /// All of them, from the least on.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Admin];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
