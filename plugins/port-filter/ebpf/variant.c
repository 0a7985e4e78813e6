/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* eBPF variant of `port-filter`: drops the same packets as the instance at the worker. src/ebpf.rs has the same words. */

#define RANGES 5
/* Which protocols; for each range, whether there is one, its last port and its first. */
#define SETTINGS (1 + RANGES)
#define PACKETS 0
#define DROPPED 1
#define RANGE 2
#define COUNTERS (RANGE + RANGES)
#include "ebpf_variant.h"

#define TCP 1
#define UDP 2

static __always_inline int is_in(__u64 range, __u16 port)
{
	return range >> 32 && port >= (range & 0xffff) && port <= (range >> 16 & 0xffff);
}

static __always_inline enum variant_verdict variant(const struct packet *packet, const __u64 *settings, __u64 *counters)
{
	__u64 which = packet->protocol == VARIANT_PROTOCOL_TCP ? TCP : packet->protocol == VARIANT_PROTOCOL_UDP ? UDP : 0;
	int range;

	counters[PACKETS]++;
	if (!(settings[0] & which))
		return VARIANT_PASS;
#pragma clang loop unroll(full)
	for (range = 0; range < RANGES; range++) {
		if (is_in(settings[1 + range], packet->destination_port)) {
			counters[RANGE + range]++;
			counters[DROPPED]++;
			return VARIANT_DROP;
		}
	}
	return VARIANT_PASS;
}
