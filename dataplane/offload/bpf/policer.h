/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Token buckets that programs and workers share. Each is one word: the time up to which past packets have
 * been paid for. foundation/units/src/token_bucket.rs explains the algorithm and computes the same.
 */
#ifndef MILLRACE_POLICER_H
#define MILLRACE_POLICER_H

#include "helpers.h"

#define POLICERS 1024
#define TICKS_PER_NANOSECOND 16
#define PRICE_FRACTION 16
#define TRIES 4

struct policer {
	__u64 paid; /* in ticks */
	__u64 byte; /* ticks per byte, times 65,536 */
	__u64 depth; /* ticks between a full bucket and an empty one */
	__u64 reserved[5];
} __attribute__((aligned(64)));

/* Takes `bytes` from the bucket. Returns whether it had them. */
static __always_inline int takes(struct policer *bucket, __u64 bytes)
{
	__u64 now = bpf_ktime_get_ns() * TICKS_PER_NANOSECOND;
	__u64 cost = (bytes * bucket->byte + (1 << PRICE_FRACTION) - 1) >> PRICE_FRACTION;
	__u64 paid = *(volatile __u64 *)&bucket->paid, until, found;
	int try;

#pragma clang loop unroll(full)
	for (try = 0; try < TRIES; try++) {
		until = (paid > now ? paid : now) + cost;
		if (until > now + bucket->depth)
			return 0;
		found = __sync_val_compare_and_swap(&bucket->paid, paid, until);
		if (found == paid)
			return 1;
		paid = found;
	}
	/* Other programs changed the word at each attempt: the packet passes, and is paid for. */
	__sync_fetch_and_add(&bucket->paid, cost);
	return 1;
}

#endif
