/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Kernel helpers and map definitions that the programs use. With them, a build needs clang only, and no libbpf. */
#ifndef MILLRACE_HELPERS_H
#define MILLRACE_HELPERS_H

#include <linux/bpf.h>
#include <linux/if_ether.h>

#define SEC(name) __attribute__((section(name), used))
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))

/* The BTF of a map's definition encodes the map's attributes as types of pointers. */
#define __uint(name, number) int(*name)[number]
#define __type(name, of) typeof(of) *name

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define bpf_htons(x) ((__be16)__builtin_bswap16(x))
#define bpf_htonl(x) ((__be32)__builtin_bswap32(x))
#else
#define bpf_htons(x) ((__be16)(x))
#define bpf_htonl(x) ((__be32)(x))
#endif
#define bpf_ntohs(x) bpf_htons(x)

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static __u64 (*bpf_ktime_get_ns)(void) = (void *)BPF_FUNC_ktime_get_ns;
static __u32 (*bpf_get_smp_processor_id)(void) = (void *)BPF_FUNC_get_smp_processor_id;
static long (*bpf_tail_call)(void *context, void *programs, __u32 index) = (void *)BPF_FUNC_tail_call;
static struct bpf_sock *(*bpf_skc_lookup_tcp)(void *context, void *tuple, __u32 size, __u64 namespace, __u64 flags) =
	(void *)BPF_FUNC_skc_lookup_tcp;
static long (*bpf_sk_release)(void *sock) = (void *)BPF_FUNC_sk_release;
static long (*bpf_redirect)(__u32 ifindex, __u64 flags) = (void *)BPF_FUNC_redirect;
static long (*bpf_check_mtu)(void *context, __u32 ifindex, __u32 *mtu, __s32 difference, __u64 flags) =
	(void *)BPF_FUNC_check_mtu;
static long (*bpf_redirect_map)(void *map, __u64 key, __u64 flags) = (void *)BPF_FUNC_redirect_map;
static __s64 (*bpf_csum_diff)(const __be32 *from, __u32 from_size, const __be32 *to, __u32 to_size, __u32 seed) =
	(void *)BPF_FUNC_csum_diff;
static long (*bpf_skb_load_bytes)(const void *skb, __u32 offset, void *to, __u32 length) =
	(void *)BPF_FUNC_skb_load_bytes;
static long (*bpf_skb_store_bytes)(void *skb, __u32 offset, const void *from, __u32 length, __u64 flags) =
	(void *)BPF_FUNC_skb_store_bytes;
static __u64 (*bpf_skb_cgroup_id)(void *skb) = (void *)BPF_FUNC_skb_cgroup_id;
static __u64 (*bpf_skb_ancestor_cgroup_id)(void *skb, int level) = (void *)BPF_FUNC_skb_ancestor_cgroup_id;
static long (*bpf_xdp_adjust_tail)(struct xdp_md *context, int delta) = (void *)BPF_FUNC_xdp_adjust_tail;
static __u64 (*bpf_xdp_get_buff_len)(struct xdp_md *context) = (void *)BPF_FUNC_xdp_get_buff_len;
static long (*bpf_xdp_store_bytes)(struct xdp_md *context, __u32 offset, void *from, __u32 length) =
	(void *)BPF_FUNC_xdp_store_bytes;

/* Returns the length of a frame's first buffer in bytes. The barrier keeps clang from merging the pointer difference
 * into longer integer sums, which the verifier refuses. */
static __always_inline __u32 linear_length(const struct xdp_md *context)
{
	__u32 length = (void *)(long)context->data_end - (void *)(long)context->data;

	asm volatile("" : "+r"(length));
	return length;
}

#endif
