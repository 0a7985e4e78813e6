//! Limit on the number of remote requests at control, in total and for each token. So local requests wait for
//! few remote ones, and no token takes all slots.

use std::time::Duration;

use axum::http::StatusCode;

use crate::http::problem::Problem;
use crate::limits::shares::{Slot, Slots};

/// Maximum number of remote requests at control at a time.
const ALL: usize = 32;
/// Maximum number of requests of one token at control at a time.
const EACH: usize = ALL / 4;
/// Expected maximum number of tokens that have requests at the same time: the maximum number of remote
/// clients.
const TOKENS: usize = 512;
/// Maximum time that a request waits for a slot.
const PATIENCE: Duration = Duration::from_secs(5);

/// Slots for remote requests. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct RemoteLimit(Slots);

impl Default for RemoteLimit {
    fn default() -> Self {
        Self(Slots::new(ALL, (EACH, TOKENS), PATIENCE))
    }
}

impl RemoteLimit {
    /// Waits for a slot for a request of a token.
    ///
    /// # Errors
    /// Returns 503 if no slot becomes free in time.
    pub async fn enter(&self, token: &str) -> Result<Slot, Problem> {
        self.0.enter(token).await.map_err(|is_own| self.refusal(token, is_own))
    }

    fn refusal(&self, token: &str, is_own: bool) -> Problem {
        let busy = match is_own {
            true => {
                format!("{token} has {EACH} requests in progress, the limit for a token")
            }
            false => format!("{ALL} remote requests are in progress, the limit for all tokens"),
        };
        let seconds = self.0.patience.as_secs();
        let detail = format!(
            "{busy}, and none finished within {seconds} s: wait for answers before you send more requests"
        );
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).with_retry(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn impatient() -> RemoteLimit {
        let mut limit = RemoteLimit::default();
        limit.0.patience = Duration::from_millis(50);
        limit
    }

    #[tokio::test]
    async fn token_has_its_share_and_delays_no_other_token() {
        let remote = impatient();
        let mut held = Vec::new();
        for _ in 0..EACH {
            held.push(remote.enter("token a").await.unwrap());
        }
        // Requests beyond the token's maximum wait, and don't delay requests of other tokens.
        let more: Vec<_> = (0..100)
            .map(|_| {
                let remote = remote.clone();
                tokio::spawn(async move { remote.enter("token a").await })
            })
            .collect();
        tokio::task::yield_now().await;
        assert!(remote.enter("token b").await.is_ok());
        for one in more {
            let refused = one.await.unwrap().unwrap_err();
            assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
            assert!(refused.detail.to_string().starts_with("token a has 8 requests"), "{}", refused.detail);
        }
        held.pop();
        assert!(remote.enter("token a").await.is_ok());
    }

    #[tokio::test]
    async fn all_tokens_together_leave_control_to_this_machine() {
        let remote = impatient();
        let mut held = Vec::new();
        for token in 0..ALL / EACH {
            for _ in 0..EACH {
                held.push(remote.enter(&format!("token {token}")).await.unwrap());
            }
        }
        let refused = remote.enter("token z").await.unwrap_err();
        assert!(refused.detail.to_string().starts_with("32 remote requests"), "{}", refused.detail);
        drop(held);
        assert!(remote.enter("token z").await.is_ok());
    }
}
