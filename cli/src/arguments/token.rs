//! Arguments of the command `token`.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

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
        #[arg(long, value_name = "TIME", value_parser = long_time)]
        expires: Option<Duration>,
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

/// A time with its unit, up to years.
fn long_time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time: 90s, 15m, 12h, 30d and 1y are");
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        'y' => 365 * 86_400,
        _ => return Err(wrong()),
    };
    let count: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    let all = count.checked_mul(seconds).filter(|all| *all > 0).ok_or_else(wrong)?;
    Ok(Duration::from_secs(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, seconds) in
            [("90s", 90), ("2m", 120), ("1h", 3600), ("30d", 2_592_000), ("1y", 31_536_000)]
        {
            assert_eq!(long_time(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for wrong in ["", "30", "d", "0d", "-1d", "1w", "99999999999999999999y", "1ö"] {
            assert!(long_time(wrong).is_err(), "{wrong}");
        }
    }
}
