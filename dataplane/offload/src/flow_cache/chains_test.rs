//! IPv6 packets of a cached flow with extension headers before the transport header. The worker must handle
//! them, whatever the flow cache entry contains.

use super::dry_runs::{Bench, PORT};
use super::tests::{V6, v6_frame};
use crate::test_support::can_load;

/// Lengths of the link header and of the IPv6 header, in octets.
const HEADERS: (usize, usize) = (14, 40);

/// Returns a frame of the cached flow with these extension headers after its IPv6 header. `chain` has the
/// number of each header, and the header's octets after its next-header field.
fn with_chain(chain: &[(u8, &[u8])], length: Option<usize>) -> Vec<u8> {
    let frame = v6_frame();
    let (link, rest) = frame.split_at(HEADERS.0);
    let (header, transport) = rest.split_at(HEADERS.1);
    let mut next: Vec<u8> = chain.iter().map(|(number, _)| *number).collect();
    next.push(header[6]);
    let mut body = Vec::new();
    for ((_, octets), next) in chain.iter().zip(&next[1..]) {
        body.push(*next);
        body.extend(*octets);
    }
    body.extend(transport);
    body.truncate(length.unwrap_or(body.len()));
    let mut header = header.to_vec();
    header[6] = next[0];
    header[4..6].copy_from_slice(&(body.len() as u16).to_be_bytes());
    [link, &header, &body].concat()
}

#[test]
fn packets_of_a_cached_flow_whose_chain_hides_the_transport_go_to_the_worker() {
    if !can_load() {
        return;
    }
    let mut bench = Bench::new(16);
    bench.begin(V6.0, V6.1);
    let options: &[u8] = &[0, 1, 4, 0, 0, 0, 0];
    let frames = [
        with_chain(&[(60, options)], None),
        with_chain(&[(60, options); 8], None),
        with_chain(&[(60, options); 9], None),
        // Hop-by-hop options at a wrong position, and at the right one.
        with_chain(&[(60, options), (0, options)], None),
        with_chain(&[(0, options)], None),
        with_chain(&[(43, &[0, 4, 0, 0, 0, 0, 0])], None),
        with_chain(&[(44, &[0, 0, 1, 0, 0, 0, 7])], None),
        // The packet ends inside the chain, or inside the transport header.
        with_chain(&[(60, &[9, 1, 4, 0, 0, 0, 0])], Some(8)),
        with_chain(&[], Some(4)),
    ];
    for frame in frames {
        bench.writer.set_done(PORT, bench.writer.up(PORT));
        assert!(bench.forwards(&v6_frame()), "the flow itself stays");
        for program in 0..2 {
            assert_eq!(bench.run(program, &frame), None, "{frame:x?}");
        }
    }
}
