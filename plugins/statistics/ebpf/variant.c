/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* eBPF variant of `statistics`: counts like the instance at the worker. src/ebpf.rs has the order of the counters. */

#define SETTINGS 1
#define SIZES 7
#define FAMILY_WORDS 512
#define V4 2
#define V6 (V4 + FAMILY_WORDS)
#define SIZE (V6 + FAMILY_WORDS)
#define COUNTERS (SIZE + SIZES)
#include "ebpf_variant.h"

#define BY_PROTOCOL 1
#define BY_SIZE 2

static __always_inline __u32 size_class(__u32 length)
{
	if (length <= 63)
		return 0;
	if (length <= 127)
		return 1;
	if (length <= 255)
		return 2;
	if (length <= 511)
		return 3;
	if (length <= 1023)
		return 4;
	return length <= 1518 ? 5 : 6;
}

static __always_inline enum variant_verdict variant(const struct packet *packet, const __u64 *settings, __u64 *counters)
{
	__u64 *by_protocol = counters + (packet->family == 4 ? V4 : V6) + packet->protocol * 2;

	counters[0]++;
	counters[1] += packet->length;
	if (settings[0] & BY_PROTOCOL) {
		by_protocol[0]++;
		by_protocol[1] += packet->length;
	}
	if (settings[0] & BY_SIZE)
		counters[SIZE + size_class(packet->length)]++;
	return VARIANT_PASS;
}
