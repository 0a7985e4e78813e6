/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Parsing and rewriting of plain packets. The twin in Rust is src/flow_cache/forward_twin.rs; a property test
 * compares both.
 */
#ifndef MILLRACE_FLOW_CACHE_PACKET_H
#define MILLRACE_FLOW_CACHE_PACKET_H

#include "flow_cache_maps.h"

#define PROTOCOL_ICMP 1
#define PROTOCOL_TCP 6
#define PROTOCOL_UDP 17
#define PROTOCOL_ICMPV6 58

#define TCP_LENGTH 20
#define UDP_LENGTH 8
/* Bits of the fragment field that only fragments set: all but the reserved bit and "don't fragment". */
#define FRAGMENT 0x3fff
/* Length of the shortest Ethernet frame, without its check sequence. Shorter frames are padded. */
#define SHORTEST_FRAME 60

/*
 * Maximum number of bytes over which the program completes a partial checksum, and number of bytes per step.
 */
#define LONGEST_SUM 4096
#define SUM_STEP 64

/* The packet is an upcall: it goes to the worker unchanged. */
#define GO_UP (-1)

struct ipv4_header {
	__u8 version_length, service;
	__be16 total_length, identification, fragment;
	__u8 ttl, protocol;
	__u16 checksum;
	__u8 source[4], destination[4];
};

struct ipv6_header {
	__be32 version_class_label;
	__be16 payload_length;
	__u8 next_header, hop_limit;
	__u8 source[16], destination[16];
};

struct transport_header {
	__be16 source_port, destination_port;
	__u16 udp_length, udp_checksum;
	__u32 acknowledged;
	__u16 flags, window, tcp_checksum, urgent;
};

/* Parsed packet that may be forwarded here. */
struct candidate {
	struct flow_key key __attribute__((aligned(8)));
	__u32 network_length;
	int partial; /* whether the checksum is partial */
};

/* Adds the 32-bit words of an aligned header to a sum. */
static __always_inline __u64 add_words(__u64 sum, const void *from, const int count)
{
	const __u32 *words = from;
	int i;

#pragma clang loop unroll(full)
	for (i = 0; i < count; i++)
		sum += words[i];
	return sum;
}

static __always_inline void copy_words(void *to, const void *from, const int count)
{
	const __u32 *words = from;
	__u32 *copies = to;
	int i;

#pragma clang loop unroll(full)
	for (i = 0; i < count; i++)
		copies[i] = words[i];
}

static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* Whether a frame of this length holds just this packet, padded at most to the shortest frame. */
static __always_inline int fits(__u64 frame_length, __u32 network_length)
{
	__u64 wanted = ETH_HLEN + network_length;

	return frame_length == wanted || (frame_length <= SHORTEST_FRAME && frame_length > wanted);
}

/*
 * Reads the transport ports. A checksum equal to the folded pseudo header is a partial one that the sender
 * left to its NIC (dataplane/port/src/stateless_offload/partial_checksum.rs).
 */
static __always_inline int read_transport(struct candidate *packet, const void *header, const void *end, __u32 length,
					  __u64 pseudo)
{
	const struct transport_header *transport = header;
	__u8 protocol = packet->key.protocol;
	__u16 checksum;

	if (protocol == PROTOCOL_ICMP || protocol == PROTOCOL_ICMPV6)
		return 0;
	if (protocol == PROTOCOL_TCP) {
		if (length < TCP_LENGTH || header + TCP_LENGTH > end)
			return GO_UP;
		checksum = transport->tcp_checksum;
	} else if (protocol == PROTOCOL_UDP) {
		if (length < UDP_LENGTH || header + UDP_LENGTH > end)
			return GO_UP;
		checksum = transport->udp_checksum;
	} else {
		return GO_UP;
	}
	if (checksum == fold(pseudo + bpf_htons(protocol) + bpf_htons((__u16)length)))
		packet->partial = 1;
	packet->key.source_port = bpf_ntohs(transport->source_port);
	packet->key.destination_port = bpf_ntohs(transport->destination_port);
	return 0;
}

static __always_inline int read_ipv4(struct candidate *packet, const void *header, const void *end, __u64 length)
{
	const struct ipv4_header *ip = header;

	if (header + sizeof(*ip) > end || ip->version_length != 0x45 || ip->fragment & bpf_htons(FRAGMENT) || ip->ttl <= 1)
		return GO_UP;
	packet->network_length = bpf_ntohs(ip->total_length);
	if (packet->network_length < sizeof(*ip) || !fits(length, packet->network_length) ||
	    fold(add_words(0, ip, sizeof(*ip) / 4)) != 0xffff)
		return GO_UP;
	copy_words(packet->key.source, ip->source, 1);
	copy_words(packet->key.destination, ip->destination, 1);
	packet->key.family = 4;
	packet->key.protocol = ip->protocol;
	return read_transport(packet, header + sizeof(*ip), end, packet->network_length - sizeof(*ip),
			      add_words(0, ip->source, 2));
}

static __always_inline int read_ipv6(struct candidate *packet, const void *header, const void *end, __u64 length)
{
	const struct ipv6_header *ip = header;
	__u32 payload;

	if (header + sizeof(*ip) > end || (ip->version_class_label & bpf_htonl(0xf0000000)) != bpf_htonl(0x60000000) ||
	    ip->hop_limit <= 1)
		return GO_UP;
	payload = bpf_ntohs(ip->payload_length);
	packet->network_length = payload + sizeof(*ip);
	if (!payload || !fits(length, packet->network_length))
		return GO_UP;
	copy_words(packet->key.source, ip->source, 4);
	copy_words(packet->key.destination, ip->destination, 4);
	packet->key.family = 6;
	packet->key.protocol = ip->next_header;
	return read_transport(packet, header + sizeof(*ip), end, payload, add_words(0, &packet->key, 8));
}

/*
 * Whether a source address is valid: neither multicast nor zero. A worker drops frames from other
 * addresses.
 */
static __always_inline int is_station(const __u8 *address)
{
	return !(address[0] & 1) && (address[0] | address[1] | address[2] | address[3] | address[4] | address[5]);
}

static __always_inline int read_packet(struct candidate *packet, void *data, const void *end, __u64 length)
{
	const struct ethhdr *link = data;

	if (data + ETH_HLEN > end || !is_station(link->h_source))
		return GO_UP;
	if (link->h_proto == bpf_htons(ETH_P_IP))
		return read_ipv4(packet, data + ETH_HLEN, end, length);
	if (link->h_proto == bpf_htons(ETH_P_IPV6))
		return read_ipv6(packet, data + ETH_HLEN, end, length);
	return GO_UP;
}

/*
 * Returns `size` bytes that begin `left` bytes before the end of a packet; null where they exceed the frame.
 * The packet has `length` bytes from `start` on. The mask shows the verifier a bound that always holds.
 */
static __always_inline const void *before_end(const void *start, const void *end, __u32 length, __u32 left, __u32 size)
{
	const void *from;
	__u32 at = length - left;

	asm volatile("" : "+r"(at));
	from = start + (at & (LONGEST_SUM - 1));
	return from + size > end ? 0 : from;
}

/*
 * Returns the unfolded sum of `length` bytes from `start` on; negative if they are too many. The loops count
 * down the remaining bytes, whose bounds the verifier knows. So it need not check each length separately.
 */
static __always_inline __s64 sum_to_end(const void *start, const void *end, __u32 length)
{
	__u32 left = length;
	const void *from;
	__s64 sum = 0;

	if (length >= LONGEST_SUM)
		return -1;
	while (left >= SUM_STEP) {
		from = before_end(start, end, length, left, SUM_STEP);
		if (!from)
			return -1;
		sum = bpf_csum_diff(0, 0, from, SUM_STEP, sum);
		left -= SUM_STEP;
	}
	while (left >= 4) {
		from = before_end(start, end, length, left, 4);
		if (!from)
			return -1;
		sum = bpf_csum_diff(0, 0, from, 4, sum);
		left -= 4;
	}
	sum = (__u32)sum;
	if (left >= 2) {
		from = before_end(start, end, length, left, 2);
		if (!from)
			return -1;
		sum += *(const __u16 *)from;
		left -= 2;
	}
	if (left) {
		from = before_end(start, end, length, left, 1);
		if (!from)
			return -1;
		sum += bpf_htons((__u16)(*(const __u8 *)from << 8));
	}
	return sum;
}

/* Completes a partial checksum. The field itself contributes the sum of the pseudo header. */
static __always_inline int complete(const struct candidate *packet, void *data, const void *end)
{
	__u32 transport = packet->key.family == 4 ? ETH_HLEN + sizeof(struct ipv4_header) :
						    ETH_HLEN + sizeof(struct ipv6_header);
	__u32 field = packet->key.protocol == PROTOCOL_TCP ? 16 : 6;
	__u16 *checksum = data + transport + field;
	__s64 sum;

	if ((void *)(checksum + 1) > end)
		return -1;
	sum = sum_to_end(data + transport, end, ETH_HLEN + packet->network_length - transport);
	if (sum < 0)
		return -1;
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
	*checksum = ~fold(sum);
	if (!*checksum && packet->key.protocol == PROTOCOL_UDP)
		*checksum = 0xffff;
	return 0;
}

/* Decrements TTL or hop limit with the checksum (RFC 1624), and writes the link header. */
static __always_inline void rewrite(void *data, const __u8 *link, __u8 family)
{
	void *header = data + ETH_HLEN;

	if (family == 4) {
		struct ipv4_header *ip = header;
		__u32 sum = ip->checksum + bpf_htons(0x0100);

		ip->checksum = sum + (sum >= 0xffff);
		ip->ttl--;
	} else {
		struct ipv6_header *ip = header;

		ip->hop_limit--;
	}
	__builtin_memcpy(data, link, 2 * ETH_ALEN);
}

#endif
