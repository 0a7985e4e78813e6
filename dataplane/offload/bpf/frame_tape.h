/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Frame tape: frames that user space has written one after the other. A program runs on as many live frames,
 * and each run turns its frame into the next one of the tape. Rust writes the tape:
 * src/injector/frame_tape.rs.
 */
#ifndef MILLRACE_FRAME_TAPE_H
#define MILLRACE_FRAME_TAPE_H

#include "helpers.h"

/* Size of the tape in bytes, a power of two. After it there is room for the longest frame. */
#define TAPE_BYTES 0x40000
#define LONGEST_ON_TAPE 4096

/*
 * Bytes before the frame of an entry: the frame's length and an unused word. The entry is padded to a whole
 * number of 8-byte words.
 */
#define ENTRY_HEAD 8

struct tape {
	__u8 bytes[TAPE_BYTES + ENTRY_HEAD + LONGEST_ON_TAPE];
};

/*
 * Cursor of the tape: start of the next entry, and number of taken entries. meets_again: whether
 * the port's own program sees the frames that millrace_hand passes once more.
 */
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

/*
 * Replaces a single-buffer frame by the next entry. Returns the cursor, after the entry; null where there is
 * no entry.
 */
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
