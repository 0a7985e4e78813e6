//! ICMP messages of the router: errors, redirects, and their rate limit.

mod icmp_error;
mod rate_limit;
mod redirect;

pub use self::icmp_error::{ErrorOptions, IcmpError, build_error, may_send_error};
pub use self::rate_limit::{ErrorLimiter, RateLimit};
pub use self::redirect::{RedirectQuery, build_redirect6, redirect_target};
