//! Arguments of the command `token`.

use clap::{Args, Subcommand, ValueEnum};
use millrace_controller::TokenTime;

/// Arguments of `token`.
#[derive(Debug, Args)]
pub struct Token {
    /// Subcommand.
    #[command(subcommand)]
    pub action: TokenAction,
}

/// Subcommands of `token`.
#[derive(Debug, Subcommand)]
pub enum TokenAction {
    /// Create a token and print it once.
    #[command(
        after_help = "Example:\n  millrace token create prometheus --role viewer > /etc/prometheus/millrace.token\n  millrace token create ci --role operator --expires 30d"
    )]
    Create {
        /// Name of the token, shown in the audit log.
        name: String,
        /// Role of the token.
        #[arg(long, value_name = "ROLE")]
        role: RoleArgument,
        /// Lifetime: 12h, 30d, 1y (default: unlimited).
        #[arg(long, value_name = "TIME")]
        expires: Option<TokenTime>,
    },
    /// List tokens.
    #[command(after_help = "Example:\n  millrace token list")]
    List,
    /// Revoke a token.
    #[command(after_help = "Example:\n  millrace token revoke ci")]
    Revoke {
        /// Its name.
        name: String,
    },
}

/// Role of a token.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum RoleArgument {
    /// Read only.
    Viewer,
    /// Also change forwarding and capture packets.
    Operator,
    /// Also load plugins, apply configurations and manage tokens.
    Admin,
}

impl RoleArgument {
    /// Returns the name of the role.
    pub fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}
