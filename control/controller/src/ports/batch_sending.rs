//! Batch sending: sends many packets at once. An eBPF program redirects the frames of a batch to a device.
//!
//! Only veth devices use batch sending, because the AF_XDP socket of a veth copies each packet and allocates
//! a socket buffer for it. A physical NIC doesn't need batch sending. It might also reorder packets, because
//! it may send redirected frames through another queue than the frames of its socket.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millrace_offload::{BatchSender, DeviceFacts};
use millrace_packet::Packet;
use millrace_port::BatchSend;

/// Whether a device can use batch sending at present. Control writes this state, and the worker reads it.
#[derive(Clone, Debug, Default)]
pub(crate) struct BatchWay(Arc<Known>);

#[derive(Debug, Default)]
struct Known {
    is_made: AtomicBool,
    takes_redirects: AtomicBool,
}

impl BatchWay {
    /// Stores whether the device accepts redirected frames at present.
    pub fn set_takes_redirects(&self, takes: bool) {
        self.0.takes_redirects.store(takes, Ordering::Relaxed);
    }

    /// Whether packets leave by batch sending at present.
    pub fn is_open(&self) -> bool {
        self.0.takes_redirects.load(Ordering::Relaxed) && self.0.is_made.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
pub(crate) struct DeviceBatches {
    sender: BatchSender,
    way: BatchWay,
}

impl DeviceBatches {
    /// Creates the batch sender of a device. Returns `None` if the device is not a veth with exactly one
    /// transmit queue, or if the kernel refuses.
    pub fn of(ifindex: u32, way: &BatchWay) -> Option<Self> {
        let facts = DeviceFacts::of(ifindex)?;
        // With several transmit queues, packets could be reordered.
        if facts.driver != "veth" || facts.tx_queues != 1 {
            return None;
        }
        match BatchSender::new(ifindex) {
            Ok(sender) => {
                way.0.is_made.store(true, Ordering::Relaxed);
                Some(Self { sender, way: way.clone() })
            }
            Err(error) => {
                tracing::info!("batch sending is unavailable, so packets are sent by sockets only: {error}");
                None
            }
        }
    }
}

impl BatchSend for DeviceBatches {
    fn longest(&self) -> usize {
        if self.way.is_open() { BatchSender::LONGEST } else { 0 }
    }

    fn send(&mut self, packets: &[Packet]) -> usize {
        let mut rest = packets;
        while !rest.is_empty() {
            let fits = |packet: &&Packet| self.sender.put(packet.len(), packet.frames());
            let given = rest.iter().take_while(fits).count();
            let taken = self.sender.send().unwrap_or(0) as usize;
            rest = &rest[taken.min(given)..];
            if given == 0 || taken < given {
                break;
            }
        }
        packets.len() - rest.len()
    }
}
