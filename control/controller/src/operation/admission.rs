//! Admission of operations: whether the router has the resources that an operation takes.

use super::Operation;
use crate::ControlError;
use crate::router::Router;

/// Admits an operation of type `O`, or refuses it. [`Router::execute`] asks before each operation, for any
/// caller.
///
/// # Errors
/// [`ControlError::NoRoom`] if the operation takes memory and memory is short.
pub(super) fn admit<O: Operation>(router: &Router) -> Result<(), ControlError> {
    if O::TAKES_MEMORY { router.room_for(0) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use millrace_config::Config;

    use crate::operation::{AddRoute, ListRoutes, Principal, RemoveRoute};
    use crate::request::NewRoute;
    use crate::workers::memory_guard::MemoryGuard;
    use crate::{ControlError, RouteQuery, StartOptions, start};

    #[tokio::test]
    async fn memory_shortage_refuses_only_allocating_operations() {
        let text = "[[port]]\nname = \"lan\"\nkind = \"memory\"\naddress = [\"10.1.0.1/24\"]\n";
        let router = start(Config::parse(text, "test").unwrap(), StartOptions::default()).await.unwrap();
        let own = Principal::router();
        let route = |to: &str| {
            let new: NewRoute =
                serde_json::from_value(serde_json::json!({"to": to, "via": ["10.1.0.9"]})).unwrap();
            AddRoute(new)
        };
        router.execute(&own, route("10.9.0.0/16")).await.unwrap();
        router.guard_memory(MemoryGuard { has_room: |_| false, recover: || false });
        let refused = router.execute(&own, route("10.8.0.0/16")).await.unwrap_err();
        assert!(matches!(refused, ControlError::NoRoom(_)), "{refused}");
        let to = "10.9.0.0/16".to_owned();
        router.execute(&own, RemoveRoute { to }).await.unwrap();
        let left = router.execute(&own, ListRoutes(RouteQuery::default())).await.unwrap().rows;
        assert!(left.iter().all(|route| !["10.8.0.0/16", "10.9.0.0/16"].contains(&&*route.to)), "{left:?}");
        router.shutdown().await.unwrap();
    }
}
