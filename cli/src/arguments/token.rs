//! Arguments of the command `token`.

use clap::{Subcommand, ValueEnum};
use millrace_controller::TokenTime;

/// Subcommands of `token`.
#[derive(Debug, Subcommand)]
pub enum TokenAction {
    /// Create a token and print it once.
    #[command(after_help = "\
Examples:
  millrace token create prometheus --role viewer > /etc/prometheus/millrace.token
  millrace token create ci --role operator --expires 30d

The router stores only a hash of the token and can't print the token again.")]
    Create {
        /// Name of the token, shown in the audit log.
        name: String,
        /// Rights of the token.
        #[arg(long, value_name = "ROLE")]
        role: RoleArgument,
        /// Lifetime, 1s to 36600d, such as 12h, 30d or 1y (default: unlimited).
        #[arg(long, value_name = "TIME")]
        expires: Option<TokenTime>,
    },
    /// List tokens with role, expiry and last use.
    #[command(after_help = "Examples:\n  millrace token list\n  millrace token list --json")]
    List,
    /// Revoke a token.
    #[command(
        after_help = "Examples:\n  millrace token revoke ci\n\nOpen connections of the token close within a second."
    )]
    Revoke {
        /// Name of the token.
        name: String,
    },
}

/// Role of a token.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum RoleArgument {
    /// Read state and counters.
    Viewer,
    /// Also change forwarding and capture packets.
    Operator,
    /// Also load plugins, apply configurations, change router-wide settings, manage tokens.
    Admin,
}
