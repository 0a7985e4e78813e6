//! Device properties that the kernel reports. No trial is needed, so this suits devices in use.

use super::rtnetlink;
use super::{ethtool, genetlink};
use crate::link_speed;

/// Properties of a device that the kernel reports.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeviceFacts {
    /// Name of the driver; empty if the driver reports none.
    pub driver: String,
    /// MTU in bytes, without link header.
    pub mtu: u32,
    /// Receive queues in use.
    pub rx_queues: u32,
    /// Transmit queues in use.
    pub tx_queues: u32,
    /// XDP features that the driver announces (`basic`, `redirect`, `rx-sg`, …), empty before Linux 6.3.
    pub xdp_features: Vec<&'static str>,
    /// Link speed in bits per second, if the driver reports it.
    pub speed: Option<u64>,
}

impl DeviceFacts {
    /// Queries a device of the calling thread's namespace; `None` if it is gone.
    pub fn of(ifindex: u32) -> Option<Self> {
        let device = rtnetlink::device(ifindex).ok()?;
        let (rx_queues, tx_queues) =
            ethtool::queues(&device.name).unwrap_or((device.rx_queues, device.tx_queues));
        Some(Self {
            driver: ethtool::driver(&device.name).unwrap_or_default(),
            mtu: device.mtu,
            rx_queues,
            tx_queues,
            xdp_features: genetlink::xdp_features(ifindex).unwrap_or_default(),
            speed: link_speed(&device.name),
        })
    }

    /// Returns the reason why programs cannot redirect frames to the device, and the remedy; `None` if they
    /// can.
    pub fn why_no_redirects(&self) -> Option<&'static str> {
        why_no_redirects(&self.driver, &self.xdp_features)
    }
}

/// Returns the reason why programs cannot redirect frames to a device with this driver and these features;
/// `None` if they can.
pub fn why_no_redirects(driver: &str, features: &[&'static str]) -> Option<&'static str> {
    match (driver, features) {
        (_, features) if features.contains(&"ndo-xmit") => None,
        ("veth", _) => Some(
            "a veth accepts redirected frames only if its peer has GRO (ethtool -K PEER gro on) or an XDP \
             program",
        ),
        (_, []) => {
            Some("the driver does not say whether it accepts redirected frames (reported since Linux 6.3)")
        }
        _ => Some("the driver does not accept redirected frames (it lacks the XDP feature ndo-xmit)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{Wire, ip};

    #[test]
    fn reason_against_redirected_frames_is_reported() {
        assert_eq!(why_no_redirects("ice", &["basic", "ndo-xmit"]), None);
        assert!(why_no_redirects("veth", &["basic"]).is_some_and(|why| why.contains("gro on")));
        assert!(why_no_redirects("tun", &["basic"]).is_some_and(|why| why.contains("ndo-xmit")));
        assert!(why_no_redirects("", &[]).is_some_and(|why| why.contains("does not say")));
    }

    #[test]
    fn device_in_use_is_described() {
        let Some(wire) = Wire::loadable() else { return };
        let port = wire.port();
        ip(&format!("-n {} link set port mtu 1400", wire.near));
        let facts = wire.near(|| DeviceFacts::of(port)).expect("it is there");
        assert_eq!((facts.driver.as_str(), facts.mtu, facts.rx_queues), ("veth", 1400, 1));
        assert_eq!(wire.near(|| DeviceFacts::of(9999)), None);
    }
}
