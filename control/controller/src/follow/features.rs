//! Follows changes of driver features. Example: a veth accepts redirected frames only while its peer accepts
//! them.

use millrace_offload::FeatureNews;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::ControlError;
use crate::router::Inner;

/// Receiver of feature changes; `None` if the kernel doesn't report them. Without reports, the periodic
/// refresh finds changes within a second.
#[derive(Debug)]
pub(super) struct Features(Option<AsyncFd<FeatureNews>>);

impl Features {
    /// Opens the receiver for the network namespace of the calling thread.
    pub fn open() -> Self {
        // SAFETY: `FeatureNews` owns its descriptor, always returns the same one, and closes it only when
        // dropped.
        let register = |news| unsafe { AsyncFd::register_with_interest(news, Interest::READABLE) };
        let opened = FeatureNews::open().and_then(|news| register(news).map_err(Into::into));
        Self(
            opened
                .inspect_err(|error| {
                    tracing::info!("the kernel can't report changes of the drivers' XDP features: {error}")
                })
                .ok(),
        )
    }

    /// Waits for a feature change; forever if the kernel reports none.
    pub async fn news(&self) {
        match &self.0 {
            Some(news) if news.readable().await.is_ok() => {}
            _ => std::future::pending().await,
        }
    }

    /// Takes all reported changes. Returns whether one concerns a device index that `matters` selects.
    fn take(&mut self, matters: impl Fn(u32) -> bool) -> bool {
        let Some(news) = &mut self.0 else { return false };
        let mut found = false;
        // `WouldBlock` tells the reactor that the socket is empty and no longer readable.
        let _ = news.try_io_mut(Interest::READABLE, |news| {
            found = news.take(matters);
            Err::<(), _>(std::io::ErrorKind::WouldBlock.into())
        });
        found
    }
}

impl Inner {
    /// Publishes the offload capabilities again if the features of one of this router's devices changed.
    pub(super) fn follow_features(&mut self, features: &mut Features) -> Result<(), ControlError> {
        match features.take(|device| self.devices.kernel.values().any(|own| own.ifindex == device)) {
            true => self.offload.refresh_ports(&mut self.devices, &self.model, &mut self.workers),
            false => Ok(()),
        }
    }
}
