//! Arguments of the command `token`.

use clap::{Args, Subcommand, ValueEnum};
use millrace_controller::TokenTime;

/// Arguments of `token`.
#[derive(Debug, Args)]
pub struct Token {
    /// What to do.
    #[command(subcommand)]
    pub action: TokenAction,
}

/// What to do with tokens.
#[derive(Debug, Subcommand)]
pub enum TokenAction {
    /// Make a token, and print it: it is told this once.
    #[command(
        after_help = "Example:\n  millrace token create prometheus --role viewer > /etc/prometheus/millrace.token\n  millrace token create ci --role operator --expires 30d"
    )]
    Create {
        /// Its name, by which the audit log tells who asked.
        name: String,
        /// What may be done with it.
        #[arg(long, value_name = "ROLE")]
        role: RoleArgument,
        /// After which time it ends: 12h, 30d, 1y. Without this it doesn't by itself.
        #[arg(long, value_name = "TIME")]
        expires: Option<TokenTime>,
    },
    /// List all tokens: roles, who made them, and when they were last used.
    #[command(after_help = "Example:\n  millrace token list")]
    List,
    /// Let nobody in by a token any more.
    #[command(after_help = "Example:\n  millrace token revoke ci")]
    Revoke {
        /// Its name.
        name: String,
    },
}

/// What may be done with a token.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum RoleArgument {
    /// Look at what the router is and does.
    Viewer,
    /// Also change where packets go and what is done with them, and see packets.
    Operator,
    /// Everything: also load plugins, apply configurations, make tokens.
    Admin,
}

impl RoleArgument {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}
