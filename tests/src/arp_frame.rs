//! ARP frames, correct or wrong in any field (RFC 826).

use std::net::Ipv4Addr;

use millrace_wire::MacAddr;

use crate::link::{Frame, Link, link_setters, station};

/// ARP frame. Fields that a test doesn't set are correct: the frame is a broadcast from the host behind port
/// a.
#[derive(Clone, Debug)]
pub struct ArpFrame {
    link: Link,
    operation: u16,
    hardware: (u16, u8),
    protocol: (u16, u8),
    sender: (MacAddr, Ipv4Addr),
    target: (MacAddr, Ipv4Addr),
    cut: Option<usize>,
}

impl ArpFrame {
    fn new(operation: u16, sender: &str, target: &str) -> Self {
        let address = |text: &str| text.parse().expect("an IPv4 address");
        let mut link = Link::new(0x0806);
        link.to = MacAddr::BROADCAST;
        Self {
            link,
            operation,
            hardware: (1, 6),
            protocol: (0x0800, 4),
            sender: (station(0xa2), address(sender)),
            target: (MacAddr::ZERO, address(target)),
            cut: None,
        }
    }

    /// Returns a request for the link address of `target`, from `sender`.
    pub fn request(sender: &str, target: &str) -> Self {
        Self::new(1, sender, target)
    }

    /// Returns a reply that assigns the frame's source MAC address to `sender`. By default the frame goes to
    /// the MAC address of the port.
    pub fn reply(sender: &str, target: &str) -> Self {
        Self::new(2, sender, target).to(station(0x0a))
    }

    link_setters!();

    /// Sets the sender's MAC address, both in the message and as the frame's source.
    pub fn sender(self, mac: MacAddr) -> Self {
        self.from(mac).claims(mac)
    }

    /// Sets the sender's MAC address in the message only.
    pub fn claims(mut self, mac: MacAddr) -> Self {
        self.sender.0 = mac;
        self
    }

    /// Sets the operation.
    pub fn operation(mut self, operation: u16) -> Self {
        self.operation = operation;
        self
    }

    /// Sets type and length of link addresses; the correct values are 1 and 6.
    pub fn hardware(mut self, kind: u16, length: u8) -> Self {
        self.hardware = (kind, length);
        self
    }

    /// Sets type and length of network addresses; the correct values are 0x0800 and 4.
    pub fn protocol(mut self, kind: u16, length: u8) -> Self {
        self.protocol = (kind, length);
        self
    }

    /// Keeps only the first `length` bytes of the 28-byte message.
    pub fn cut(mut self, length: usize) -> Self {
        self.cut = Some(length);
        self
    }
}

impl Frame for ArpFrame {
    fn bytes(&self) -> Vec<u8> {
        let mut message = [self.hardware.0.to_be_bytes(), self.protocol.0.to_be_bytes()].concat();
        message.extend([self.hardware.1, self.protocol.1]);
        message.extend(self.operation.to_be_bytes());
        for (mac, address) in [self.sender, self.target] {
            message.extend(mac.0);
            message.extend(address.octets());
        }
        message.truncate(self.cut.unwrap_or(message.len()));
        self.link.frame(&message)
    }
}
