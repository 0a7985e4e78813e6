//! What drivers announce, as soon as it changes: a veth whose other end no longer takes redirected frames loses them.

use millrace_offload::FeatureNews;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::ControlError;
use crate::router::Inner;

/// Hears of changes, where the kernel tells of them; else they are found within a second.
#[derive(Debug)]
pub(super) struct Features(Option<AsyncFd<FeatureNews>>);

impl Features {
    /// Listens in the network namespace of the calling thread.
    pub fn open() -> Self {
        // SAFETY: it owns its descriptor, always names the same one, and closes it only when it is dropped.
        let register = |news| unsafe { AsyncFd::register_with_interest(news, Interest::READABLE) };
        let opened = FeatureNews::open().and_then(|news| register(news).map_err(Into::into));
        Self(
            opened
                .inspect_err(|error| {
                    tracing::info!("the kernel does not tell what drivers announce: {error}")
                })
                .ok(),
        )
    }

    /// Waits until there is some news.
    pub async fn news(&self) {
        match &self.0 {
            Some(news) if news.readable().await.is_ok() => {}
            _ => std::future::pending().await,
        }
    }

    /// Takes the news; whether any is of a device for which `matters` says so.
    fn take(&mut self, matters: impl Fn(u32) -> bool) -> bool {
        let Some(news) = &mut self.0 else { return false };
        let mut found = false;
        // An empty socket is what ends it, and what clears that it is readable.
        let _ = news.try_io_mut(Interest::READABLE, |news| {
            found = news.take(matters);
            Err::<(), _>(std::io::ErrorKind::WouldBlock.into())
        });
        found
    }
}

impl Inner {
    /// Takes up what drivers announce now.
    pub(super) fn follow_features(&mut self, features: &mut Features) -> Result<(), ControlError> {
        match features.take(|device| self.kernel.values().any(|own| own.ifindex == device)) {
            true => self.refresh_driver_ports(),
            false => Ok(()),
        }
    }
}
