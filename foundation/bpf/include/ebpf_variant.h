/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Header of the eBPF variants of plugins. A variant is a C file that defines SETTINGS and COUNTERS, its numbers of settings words
 * and counter words, includes this header, and defines variant():
 *
 *	#define SETTINGS 1
 *	#define COUNTERS 2
 *	#include "ebpf_variant.h"
 *
 *	static __always_inline enum variant_verdict variant(const struct packet *packet, const __u64 *settings, __u64 *counters)
 *	{
 *		counters[0]++;
 *		counters[1] += packet->length;
 *		return packet->length > settings[0] ? VARIANT_DROP : VARIANT_PASS;
 *	}
 *
 * The flow cache calls variant() for each packet of an offloaded flow that is bound to an instance of the plugin, before any
 * change of the packet. Each packet is well-formed: IPv4 without options or IPv6 without extension headers, TCP, UDP, ICMP or
 * ICMPv6, and no fragment. variant() has no loops and does not change the packet. The kernel verifies it, and the router counts
 * its instructions before its first use. A packet that variant() counts and then passes to the worker is counted twice.
 *
 * Each instance has its own copy of the maps. src/flow_cache/ebpf_variants.rs of dataplane/offload writes and reads them.
 */
#ifndef MILLRACE_EBPF_VARIANT_H
#define MILLRACE_EBPF_VARIANT_H

#include "helpers.h"

#define VARIANT_PROTOCOL_TCP 6
#define VARIANT_PROTOCOL_UDP 17

/* Verdicts of variant(). The values are those in bpf/flow_cache.h of dataplane/offload. */
enum variant_verdict {
	VARIANT_PASS,
	VARIANT_DROP,
	/* Pass the packet to the worker. */
	VARIANT_UPCALL,
};

struct packet {
	__u32 length; /* in bytes, with the link header, without padding */
	__u8 family; /* 4 or 6 */
	__u8 protocol;
	__u16 source_port, destination_port; /* of TCP and UDP; native byte order */
};

/* Two banks of settings words. The router writes the bank that is not in use, and then selects it by `bank`. */
struct variant_settings {
	__u64 bank;
	__u64 words[2][SETTINGS];
};

struct variant_counters {
	__u64 words[COUNTERS];
} __attribute__((aligned(64)));

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct variant_settings);
} settings SEC(".maps");

/* Counters of each processor. The router sets max_entries to the number of processors when it creates the map. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct variant_counters);
} counters SEC(".maps");

static __always_inline enum variant_verdict variant(const struct packet *packet, const __u64 *settings, __u64 *counters);

/* Fills in family, protocol and length. Returns the offset of the transport header; 0 if the frame is too short. */
static __always_inline __u32 variant_network(struct packet *packet, const __u8 *data, const void *end)
{
	const __u16 *words = (const void *)data;

	if ((void *)data + 34 > end)
		return 0;
	if (words[6] == bpf_htons(ETH_P_IP)) {
		packet->family = 4;
		packet->protocol = data[23];
		packet->length = ETH_HLEN + bpf_ntohs(words[8]);
		return 34;
	}
	packet->family = 6;
	packet->protocol = data[20];
	packet->length = ETH_HLEN + 40 + bpf_ntohs(words[9]);
	return 54;
}

static __always_inline int variant_run(struct xdp_md *context)
{
	void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	__u32 zero = 0, processor = bpf_get_smp_processor_id(), transport;
	struct variant_settings *given = bpf_map_lookup_elem(&settings, &zero);
	struct variant_counters *counted = bpf_map_lookup_elem(&counters, &processor);
	struct packet packet = {};
	const __u16 *ports;

	transport = variant_network(&packet, data, end);
	if (!given || !counted || !transport)
		return VARIANT_UPCALL;
	if (packet.protocol == VARIANT_PROTOCOL_TCP || packet.protocol == VARIANT_PROTOCOL_UDP) {
		ports = data + transport;
		if ((void *)(ports + 2) > end)
			return VARIANT_UPCALL;
		packet.source_port = bpf_ntohs(ports[0]);
		packet.destination_port = bpf_ntohs(ports[1]);
	}
	return variant(&packet, given->words[*(volatile __u64 *)&given->bank & 1], counted->words);
}

SEC("xdp")
int millrace_variant(struct xdp_md *context)
{
	return variant_run(context);
}

/* The same program for devices whose frames may have several buffers. */
SEC("xdp.frags")
int millrace_variant_sg(struct xdp_md *context)
{
	return variant_run(context);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#endif
