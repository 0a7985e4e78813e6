/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Hash table of the flow cache: the search of a flow's entry. */
#ifndef MILLRACE_FLOW_CACHE_TABLE_H
#define MILLRACE_FLOW_CACHE_TABLE_H

#include "flow_cache_maps.h"

/*
 * Returns the hash of a flow key: products of sums (NH of UMAC, RFC 4418). Without the secrets nobody finds
 * keys that collide more often than others.
 */
static __always_inline __u64 hash_of(const struct flow_key *key, const __u32 *secrets)
{
	const __u32 *words = (const void *)key;
	__u64 sum = (__u64)(__u32)(words[0] + secrets[0]) * (__u32)(words[4] + secrets[4]) +
		    (__u64)(__u32)(words[8] + secrets[8]) * (__u32)(words[9] + secrets[9]);
	int i;

	if (key->family == 6) {
#pragma clang loop unroll(full)
		for (i = 1; i < 4; i++)
			sum += (__u64)(__u32)(words[i] + secrets[i]) * (__u32)(words[i + 4] + secrets[i + 4]);
	}
	/* Final mix of MurmurHash3. */
	sum = (sum ^ sum >> 33) * 0xff51afd7ed558ccd;
	sum = (sum ^ sum >> 33) * 0xc4ceb9fe1a85ec53;
	return sum ^ sum >> 33;
}

static __always_inline int is_of(const struct cached_flow *flow, const struct flow_key *key)
{
	const __u64 *has = (const void *)&flow->key, *wanted = (const void *)key;

	return !((has[0] ^ wanted[0]) | (has[1] ^ wanted[1]) | (has[2] ^ wanted[2]) | (has[3] ^ wanted[3]) |
		 (has[4] ^ wanted[4]));
}

/* Inspected entry, and its version as read before its other fields. */
struct looked {
	__u64 version;
	__u32 slot;
	int is_it; /* whether the entry has the flow's key */
};

/* Returns the entry that a word names, if the word has the bits of this hash. Sets `at`. */
static __always_inline struct cached_flow *look(const struct place *here, const struct flow_key *key, __u64 hash, __u32 word,
						struct looked *at)
{
	struct cached_flow *flow;

	at->is_it = 0;
	if ((word ^ (__u32)hash) & ~here->numbers)
		return 0;
	at->slot = (word & here->numbers) - 1;
	flow = bpf_map_lookup_elem(&cached_flows, &at->slot);
	if (!flow)
		return 0;
	at->version = *(volatile __u64 *)&flow->version;
	at->is_it = is_of(flow, key);
	return flow;
}

static __always_inline struct bucket *bucket_of(const struct place *here, __u64 hash)
{
	__u32 number = hash & here->mask;

	return bpf_map_lookup_elem(&buckets, &number);
}

/*
 * Searches all words of a bucket, the first one again, for a flow. Returns null if none matches, and sets
 * *is_full if no word is free.
 */
static __always_inline struct cached_flow *look_at_all(const struct place *here, const struct flow_key *key, __u64 hash,
						       const struct bucket *bucket, struct looked *at, int *is_full)
{
	struct cached_flow *flow;
	__u32 turn, word;

	*is_full = 1;
#pragma clang loop unroll(disable)
	for (turn = 0; turn < WORDS; turn++) {
		word = *(volatile __u32 *)&bucket->words[((hash >> 60) + turn) % WORDS];
		*is_full &= !!word;
		flow = look(here, key, hash, word, at);
		if (flow && at->is_it)
			return flow;
	}
	return 0;
}

/*
 * Returns the entry of a flow that is not at its first word, or null. As a function of its own, it keeps its
 * variables off other stacks.
 */
static __attribute__((noinline)) struct cached_flow *look_further(const struct place *here, const struct flow_key *key,
								   struct looked *at)
{
	__u64 hash = hash_of(key, here->secrets);
	struct bucket *bucket = bucket_of(here, hash >> 36);
	struct cached_flow *flow;
	int is_full;

	if (!bucket)
		return 0;
	flow = look_at_all(here, key, hash, bucket, at, &is_full);
	if (flow || !is_full)
		return flow;
	bucket = bucket_of(here, hash >> 12);
	return bucket ? look_at_all(here, key, hash, bucket, at, &is_full) : 0;
}

/* Returns the entry of a flow, or null. */
static __always_inline struct cached_flow *find(const struct place *here, const struct flow_key *key, struct looked *at)
{
	__u64 hash = hash_of(key, here->secrets);
	struct bucket *bucket = bucket_of(here, hash >> 36);
	struct cached_flow *flow;

	if (!bucket)
		return 0;
	flow = look(here, key, hash, *(volatile __u32 *)&bucket->words[hash >> 60], at);
	return flow && at->is_it ? flow : look_further(here, key, at);
}

#endif
