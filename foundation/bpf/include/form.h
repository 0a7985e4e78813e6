/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Frame of the eBPF variant of a plugin. A variant is a file that defines SETTINGS and COUNTERS, its numbers of setting words and
 * counter words, includes this header, and defines form():
 *
 *	#define SETTINGS 1
 *	#define COUNTERS 2
 *	#include "form.h"
 *
 *	static __always_inline enum form_verdict form(const struct packet *packet, const __u64 *settings, __u64 *counters)
 *	{
 *		counters[0]++;
 *		counters[1] += packet->length;
 *		return packet->length > settings[0] ? FORM_DROP : FORM_PASS;
 *	}
 *
 * The flow cache calls form() for each packet of an offloaded flow that is bound to an instance of the plugin, before any change
 * of the packet. Each packet is well-formed: IPv4 without options or IPv6 without extension headers, TCP, UDP, ICMP or ICMPv6,
 * and no fragment. form() has no loops and does not change the packet. The kernel verifies it, and the router counts its
 * instructions before its first use. A packet that form() counts and then passes to the worker is counted twice.
 *
 * Each instance has its own copy of the maps. src/flow_cache/forms.rs of dataplane/offload has their other side.
 */
#ifndef MILLRACE_FORM_H
#define MILLRACE_FORM_H

#include "helpers.h"

#define FORM_PROTOCOL_TCP 6
#define FORM_PROTOCOL_UDP 17

/* The order is that of bpf/flow_cache.h. */
enum form_verdict {
	FORM_PASS,
	FORM_DROP,
	/* The worker treats it. */
	FORM_UP,
};

struct packet {
	__u32 length; /* in bytes, with the link header, without padding */
	__u8 family; /* 4 or 6 */
	__u8 protocol;
	__u16 source_port, destination_port; /* of TCP and UDP; native byte order */
};

/* The router writes the bank that is not in use, and then says that it is. */
struct form_settings {
	__u64 bank;
	__u64 words[2][SETTINGS];
};

struct form_counters {
	__u64 words[COUNTERS];
} __attribute__((aligned(64)));

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct form_settings);
} settings SEC(".maps");

/* One for each processor: their number is given when the map is made. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct form_counters);
} counters SEC(".maps");

static __always_inline enum form_verdict form(const struct packet *packet, const __u64 *settings, __u64 *counters);

/* Where the transport header begins; 0 where there is none that we read. */
static __always_inline __u32 form_network(struct packet *packet, const __u8 *data, const void *end)
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

static __always_inline int form_run(struct xdp_md *context)
{
	void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	__u32 zero = 0, processor = bpf_get_smp_processor_id(), transport;
	struct form_settings *given = bpf_map_lookup_elem(&settings, &zero);
	struct form_counters *counted = bpf_map_lookup_elem(&counters, &processor);
	struct packet packet = {};
	const __u16 *ports;

	transport = form_network(&packet, data, end);
	if (!given || !counted || !transport)
		return FORM_UP;
	if (packet.protocol == FORM_PROTOCOL_TCP || packet.protocol == FORM_PROTOCOL_UDP) {
		ports = data + transport;
		if ((void *)(ports + 2) > end)
			return FORM_UP;
		packet.source_port = bpf_ntohs(ports[0]);
		packet.destination_port = bpf_ntohs(ports[1]);
	}
	return form(&packet, given->words[*(volatile __u64 *)&given->bank & 1], counted->words);
}

SEC("xdp")
int millrace_form(struct xdp_md *context)
{
	return form_run(context);
}

/* For devices whose frames have several buffers. */
SEC("xdp.frags")
int millrace_form_sg(struct xdp_md *context)
{
	return form_run(context);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#endif
