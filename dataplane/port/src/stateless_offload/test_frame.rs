//! Test frames, built field by field.

/// Addresses of a frame, and the options or extension headers before the transport header.
#[derive(Clone, Debug)]
pub(crate) enum Network {
    /// IPv4 with `options` words of options.
    V4 { source: [u8; 4], destination: [u8; 4], options: usize },
    /// IPv6 with `extensions` destination options headers.
    V6 { source: [u8; 16], destination: [u8; 16], extensions: usize },
}

/// TCP or UDP packet in an Ethernet frame with `tags` VLAN tags.
#[derive(Clone, Debug)]
pub(crate) struct TestFrame {
    pub(crate) network: Network,
    pub(crate) tcp: bool,
    pub(crate) tags: usize,
    pub(crate) payload: Vec<u8>,
}

/// Returns the one's complement sum of RFC 1071, word by word.
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    let mut total = 0u64;
    for pair in bytes.chunks(2) {
        total += u64::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

impl TestFrame {
    fn protocol(&self) -> u8 {
        if self.tcp { 6 } else { 17 }
    }

    fn transport(&self) -> Vec<u8> {
        let mut header = vec![0x30, 0x39, 0x00, 0x50];
        if self.tcp {
            header.extend([0xff, 0xff, 0xff, 0x00, 0, 0, 0, 9, 0x80, 0x99, 1, 2, 0, 0, 0, 0]);
            header.extend([1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]);
        } else {
            header.extend(((self.payload.len() + 8) as u16).to_be_bytes());
            header.extend([0, 0]);
        }
        [header.as_slice(), &self.payload].concat()
    }

    fn pseudo_header(&self, length: usize) -> Vec<u8> {
        let tail = [&(length as u32).to_be_bytes()[..], &[0, 0, 0, self.protocol()]].concat();
        match &self.network {
            Network::V4 { source, destination, .. } => [&source[..], destination, &tail].concat(),
            Network::V6 { source, destination, .. } => [&source[..], destination, &tail].concat(),
        }
    }

    fn network_header(&self, length: usize) -> Vec<u8> {
        match &self.network {
            Network::V4 { source, destination, options } => {
                let header_length = 20 + 4 * options;
                let total = ((header_length + length) as u16).to_be_bytes();
                let mut header = vec![0x45 + *options as u8, 0, total[0], total[1], 0xff, 0xfe, 0x40, 0];
                header.extend([64, self.protocol(), 0, 0]);
                header.extend([&source[..], destination, &vec![1; 4 * options]].concat());
                let checksum = (!sum(&header)).to_be_bytes();
                header[10..12].copy_from_slice(&checksum);
                header
            }
            Network::V6 { source, destination, extensions } => {
                let payload = ((8 * extensions + length) as u16).to_be_bytes();
                let next = |last: bool| if last { self.protocol() } else { 60 };
                let mut header = vec![0x60, 0, 0, 0, payload[0], payload[1], next(*extensions == 0), 64];
                header.extend([&source[..], destination].concat());
                for n in 1..=*extensions {
                    header.extend([next(n == *extensions), 0, 1, 4, 0, 0, 0, 0]);
                }
                header
            }
        }
    }

    fn link_header(&self) -> Vec<u8> {
        let mut header = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        for tag in 0..self.tags {
            header.extend([0x81, 0, 0, tag as u8 + 10]);
        }
        header.extend(if matches!(self.network, Network::V4 { .. }) { [8, 0] } else { [0x86, 0xdd] });
        header
    }

    pub(crate) fn transport_offset(&self) -> usize {
        self.link_header().len() + self.network_header(0).len()
    }

    fn assemble(&self, complete: bool) -> Vec<u8> {
        let mut transport = self.transport();
        let pseudo = self.pseudo_header(transport.len());
        let mut field = sum(&pseudo);
        if complete {
            field = !sum(&[pseudo, transport.clone()].concat());
            field = if field == 0 && !self.tcp { 0xffff } else { field };
        }
        let at = if self.tcp { 16 } else { 6 };
        transport[at..at + 2].copy_from_slice(&field.to_be_bytes());
        [self.link_header(), self.network_header(transport.len()), transport].concat()
    }

    /// Returns the frame with a partial checksum, as a sender with checksum offload leaves it.
    pub(crate) fn with_partial_checksum(&self) -> Vec<u8> {
        self.assemble(false)
    }

    /// Returns the frame with a correct checksum, as it is on a wire.
    pub(crate) fn with_right_checksum(&self) -> Vec<u8> {
        self.assemble(true)
    }
}
