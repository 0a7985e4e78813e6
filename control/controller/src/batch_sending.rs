//! Sending many packets at once by a program that is run on live frames, where a device takes redirected ones.
//!
//! That is for veths: their sockets can only copy, and each packet of a socket becomes a socket buffer first. A card may send what is
//! redirected to it by another queue than its socket's, so that packets could overtake each other, and has no need of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millrace_offload::{BatchSender, DeviceFacts};
use millrace_packet::Packet;
use millrace_port::BatchSend;

/// What is known of the way for batches out of one device: control says so, the worker's port looks.
#[derive(Clone, Debug, Default)]
pub(crate) struct BatchWay(Arc<Known>);

#[derive(Debug, Default)]
struct Known {
    is_made: AtomicBool,
    takes_redirects: AtomicBool,
}

impl BatchWay {
    /// Whether the device takes redirected frames now.
    pub fn set_takes_redirects(&self, takes: bool) {
        self.0.takes_redirects.store(takes, Ordering::Relaxed);
    }

    /// Whether batches leave by it now.
    pub fn is_open(&self) -> bool {
        self.0.takes_redirects.load(Ordering::Relaxed) && self.0.is_made.load(Ordering::Relaxed)
    }
}

/// What sends batches out of one device.
#[derive(Debug)]
pub(crate) struct DeviceBatches {
    sender: BatchSender,
    way: BatchWay,
}

impl DeviceBatches {
    /// `None` where the device sends otherwise, or the kernel refuses.
    pub fn of(ifindex: u32, way: &BatchWay) -> Option<Self> {
        let facts = DeviceFacts::of(ifindex)?;
        // By one queue, so that all packets arrive in the order in which they were sent.
        if facts.driver != "veth" || facts.tx_queues != 1 {
            return None;
        }
        match BatchSender::new(ifindex) {
            Ok(sender) => {
                way.0.is_made.store(true, Ordering::Relaxed);
                Some(Self { sender, way: way.clone() })
            }
            Err(error) => {
                tracing::info!("packets leave by sockets alone: {error}");
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
