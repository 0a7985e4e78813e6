/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Frames that user space has written one behind the other, for a program that is run on as many live frames: each run turns its frame
 * into the next one of the tape. Rust writes it: src/injector/frame_tape.rs.
 */
#ifndef MILLRACE_FRAME_TAPE_H
#define MILLRACE_FRAME_TAPE_H

#include "helpers.h"

/* A power of two, behind which the longest frame still has room. */
#define TAPE_BYTES 0x40000
#define LONGEST_ON_TAPE 4096

/* An entry: the frame's length, another word, the frame, and what is missing to a whole number of words. */
#define ENTRY_HEAD 8

struct tape {
	__u8 bytes[TAPE_BYTES + ENTRY_HEAD + LONGEST_ON_TAPE];
};

/* Where the next entry begins, how many were taken; meets_again: a port's own program will see what millrace_hand passes. */
struct tape_cursor {
	__u32 at, taken, meets_again, reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tape);
} tape SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tape_cursor);
} tape_cursor SEC(".maps");

/* Makes the next entry of the frame, which is in one buffer. Returns the cursor behind it; null where there is no entry. */
static __always_inline struct tape_cursor *take_from_tape(struct xdp_md *context)
{
	__u32 zero = 0, at, length, have = linear_length(context);
	struct tape_cursor *cursor = bpf_map_lookup_elem(&tape_cursor, &zero);
	struct tape *frames = bpf_map_lookup_elem(&tape, &zero);

	if (!cursor || !frames)
		return 0;
	at = cursor->at & (TAPE_BYTES - ENTRY_HEAD);
	length = *(__u32 *)(frames->bytes + at);
	if (length < ETH_HLEN || length > LONGEST_ON_TAPE)
		return 0;
	if (length != have && bpf_xdp_adjust_tail(context, (int)length - (int)have))
		return 0;
	if (bpf_xdp_store_bytes(context, 0, frames->bytes + at + ENTRY_HEAD, length))
		return 0;
	cursor->at = at + ((ENTRY_HEAD + length + 7) & ~7U);
	cursor->taken++;
	return cursor;
}

#endif
