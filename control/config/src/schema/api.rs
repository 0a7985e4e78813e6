//! Settings of the HTTP API: addresses, certificates, groups, roles, audit log.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::quantity::Size;

/// Settings of the HTTP API over TLS, of access through the Unix socket, and of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Api {
    /// Addresses with ports at which the router listens for TLS connections. Each client needs a token.
    /// Default: none.
    #[schemars(with = "Vec<String>")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listen: Vec<SocketAddr>,
    /// PEM file with the certificate and its chain. Default: a certificate that the router issues to itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// PEM file with the private key of the certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// Further names and addresses in the certificate that the router issues to itself. The certificate
    /// always contains the machine's name, `localhost` and the addresses in `listen`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Groups whose members may use the Unix socket, each with a role. Default: none. Root and the router's
    /// own user are always admins.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub groups: BTreeMap<String, Role>,
    /// Size at which a file of the audit log is rotated, 64 KiB to 1 TiB. Default 8 MiB.
    #[serde(skip_serializing_if = "is_usual_size")]
    pub audit_size: AuditSize,
    /// Number of files of the audit log, including the current one, 1 to 100. Rotation deletes the oldest
    /// file. Default 5.
    #[serde(skip_serializing_if = "is_usual_number")]
    #[schemars(range(min = 1, max = 100))]
    pub audit_files: u32,
}

/// Size of a file of the audit log.
pub type AuditSize = Size<65_536, { 1 << 40 }>;

/// Default size of a file of the audit log.
const AUDIT_SIZE: AuditSize = Size::clamped(8 << 20);
/// Default number of files of the audit log.
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

/// Rights of a client; each role includes the rights of the roles before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// May read the state and the configuration of the router.
    Viewer,
    /// May also change routes, filters and bindings, and capture packets.
    Operator,
    /// May also load code, apply configurations and grant roles.
    Admin,
}

impl Role {
    /// All roles, in ascending order of rights.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Admin];

    /// Returns the name of the role.
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
