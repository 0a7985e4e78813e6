//! Effects of operations: the worst that a caller can cause with an operation. The effect determines the
//! lowest role that the operation may require, and whether the audit log records each request.

use millrace_config::Role;

/// Worst that a caller can cause with an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Reads configuration, counters and names.
    Look,
    /// Reads contents of packets.
    Packets,
    /// Checks a submitted request or configuration without a change, and without running code of shared objects and
    /// executables.
    DryRun,
    /// Changes forwarding, using only plugins that are loaded.
    Forwarding,
    /// Stores the running configuration, which the next start may use.
    Store,
    /// Reserves shares of the router, within the allowances of the caller.
    Shares,
    /// Changes limits that protect the router itself.
    Protection,
    /// Replaces the configuration, which may load code.
    Configuration,
    /// Loads, replaces or unloads code.
    Code,
    /// Reads API tokens or the audit log.
    ReadAccess,
    /// Creates or revokes API tokens.
    Access,
}

impl Effect {
    /// Returns the lowest role that an operation with this effect may require.
    pub const fn least_role(self) -> Role {
        match self {
            Self::Look => Role::Viewer,
            Self::Packets | Self::DryRun | Self::Forwarding | Self::Store | Self::Shares => Role::Operator,
            Self::Protection | Self::Configuration | Self::Code | Self::ReadAccess | Self::Access => {
                Role::Admin
            }
        }
    }

    /// Whether an operation with this effect only reads.
    pub const fn reads(self) -> bool {
        matches!(self, Self::Look | Self::Packets | Self::DryRun | Self::ReadAccess)
    }

    /// Whether the audit log records each request. If not, it records only refusals for lack of a role.
    pub const fn is_audited(self) -> bool {
        !matches!(self, Self::Look | Self::ReadAccess)
    }

    /// Returns the effect in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Look => "reads configuration, counters and names",
            Self::Packets => "reads contents of packets",
            Self::DryRun => {
                "checks a request or a configuration: changes nothing, and runs no shared object or executable"
            }
            Self::Forwarding => "changes forwarding with the plugins that are loaded",
            Self::Store => "stores the running configuration, which the next start may use",
            Self::Shares => "reserves shares of the router within an allowance; an admin also without one",
            Self::Protection => "changes limits that protect the router itself",
            Self::Configuration => "replaces the configuration, which may load code",
            Self::Code => "loads, replaces or unloads code",
            Self::ReadAccess => "reads API tokens and the audit log",
            Self::Access => "creates and revokes API tokens",
        }
    }
}
