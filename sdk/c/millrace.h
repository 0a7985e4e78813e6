/*
 * millrace.h: interface for plugins in C. One source becomes a WebAssembly module, a shared object, or an
 * executable that runs in a process of its own (millrace-process.h).
 *
 *   #include "millrace.h"
 *   MILLRACE_PLUGIN("{\"abi\":1,\"name\":\"counter\",\"version\":\"0.1.0\",\"summary\":\"Counts packets.\","
 *                   "\"positions\":[\"early\"],\"messages\":{\"read\":\"the counter\"}}");
 *
 *   static uint64_t packets;
 *   int32_t millrace_init(const uint8_t *settings, size_t bytes) { return 0; }
 *   void millrace_packets(struct millrace_call *call) { packets += call->count; }
 *
 * A plugin has MILLRACE_PLUGIN once, also if it has several files. It defines the manifest, the version of the
 * interface, and the memory through which the router passes data. The plugin exports millrace_init and
 * millrace_packets. It may export millrace_control, millrace_periodic, millrace_flow_ended, millrace_message,
 * millrace_save and millrace_restore.
 * docs/plugin-abi.md says when the router calls each of them.
 *
 * Build without `millrace plugin build`:
 *   clang --target=wasm32 -O2 -nostdlib -ffreestanding -Wl,--no-entry -Wl,--strip-all -o plugin.wasm plugin.c
 *   cc -O2 -shared -fPIC -fvisibility=hidden -o plugin.so plugin.c
 *   cc -O2 -static-pie -fPIE -DMILLRACE_EXECUTABLE -o plugin.elf plugin.c
 *
 * A module has no C library. This header defines memcpy, memmove, memset and memcmp for it. Modules and shared
 * objects both have all definitions below.
 */
#ifndef MILLRACE_H
#define MILLRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef __wasm__
#include <stdlib.h>
#include <string.h>
#endif

#ifdef __cplusplus
#error "this header is C; compile the plugin's source as C11"
#endif

/* The version of the interface. */
#define MILLRACE_ABI_VERSION 1
/* Packets in a call, at most. */
#define MILLRACE_MOST_PACKETS 64

/* A call of the plugin. Addresses are 64 bits wide everywhere: millrace_at makes a pointer of one. */
struct millrace_call {
    uint16_t size;        /* bytes of this structure */
    uint16_t packet_size; /* bytes from one packet's description to the next */
    uint32_t count;       /* number of packets, 1 to 64 */
    uint64_t now;         /* the time, in nanoseconds of a monotonic clock */
    uint64_t packets;     /* address of the first description; millrace_packet returns one */
};

/* Description of a packet. The plugin writes the verdict into it. */
struct millrace_packet {
    uint16_t size;
    uint16_t flags;            /* MILLRACE_MORE, MILLRACE_COPY, MILLRACE_FIRST, MILLRACE_TO_OPENER */
    uint32_t length;           /* bytes of the whole packet, link header included */
    uint64_t window;           /* address of its first bytes; with packet-write, writes there change the packet */
    uint16_t window_length;    /* number of bytes there */
    uint16_t network;          /* offset of the network header in the packet */
    uint16_t transport;        /* offset of the transport header, or MILLRACE_NO_OFFSET */
    uint16_t ether_type;       /* behind all VLAN tags */
    uint8_t family;            /* 4 or 6 */
    uint8_t protocol;          /* of the transport header */
    uint8_t tag;               /* the plugin tag, 0 to 31, writable */
    uint8_t exceptions;        /* MILLRACE_TTL and the like */
    uint16_t port;             /* port of arrival */
    uint16_t number;           /* packet's number for the router's functions during the call */
    uint64_t state;            /* address of the flow's or connection's state, writable; 0 where there is none */
    uint32_t flow;             /* identifier of the flow or connection, or 0 */
    uint16_t source_port;      /* of TCP, UDP and similar protocols, else 0 */
    uint16_t destination_port;
    uint8_t verdict;           /* MILLRACE_PASS and the like */
    uint8_t reason;            /* with MILLRACE_DROP and MILLRACE_REJECT: the plugin's own reason, 0 to 31 */
    uint16_t target;           /* with MILLRACE_TO_PORT, _QUEUE and _INSTANCE: number of the target */
    uint32_t connection;       /* MILLRACE_UNTRACKED and the like; with "state":"connection" in the manifest */
    uint64_t until;            /* with MILLRACE_HOLD: end of the hold; with MILLRACE_TO_PORTS: a bit for each port */
};

/* A flow that has ended, or a connection, in the direction of its first packet. */
struct millrace_flow_end {
    uint16_t size;
    uint8_t family;
    uint8_t protocol;
    uint16_t source_port;
    uint16_t destination_port;
    uint16_t port;
    uint16_t reserved;
    uint32_t flow;
    uint8_t source[16]; /* IPv4 in the first four bytes */
    uint8_t destination[16];
    uint64_t packets;
    uint64_t bytes;
    uint64_t state;
};

/* Backlog before a packet. Bytes include link headers. */
struct millrace_waiting {
    uint16_t size;
    uint16_t of;               /* scope of packets and bytes: MILLRACE_UNKNOWN, MILLRACE_OF_LEAF, MILLRACE_OF_FLOW */
    uint16_t port;             /* output port of the packet */
    uint16_t queue;            /* the leaf of that port's scheduler, as MILLRACE_TO_QUEUE takes it; 0 where it has none */
    uint32_t packets;          /* packets that wait there */
    uint32_t instance_packets; /* packets of all flows that wait until the instance ends its current call */
    uint64_t bytes;            /* of packets */
    uint64_t instance_bytes;   /* of instance_packets */
    uint64_t payer_bytes;      /* of payer_packets */
    uint64_t allowance;        /* nanoseconds that the principal that pays for the call has left, until others get
                                * their turn; MILLRACE_NO_ALLOWANCE if nobody pays, or the router can't measure it */
    uint32_t payer_packets;    /* packets of that principal that wait for the processor, without those of the call */
    uint32_t paid;             /* 1 if a principal pays for the call, and the three values above count; else 0 */
};

/* Value of millrace_waiting.allowance without a known limit. */
#define MILLRACE_NO_ALLOWANCE UINT64_MAX

/* Values of millrace_waiting.of. UNKNOWN: the packet's output port is not known yet, or its queue belongs
 * to another worker. OF_LEAF: the packets of all flows in the leaf. OF_FLOW: the packets of the packet's
 * flow. */
enum { MILLRACE_UNKNOWN = 0, MILLRACE_OF_LEAF = 1, MILLRACE_OF_FLOW = 2 };

/* Bits of millrace_packet.flags. */
enum { MILLRACE_MORE = 1, MILLRACE_COPY = 2, MILLRACE_FIRST = 4, MILLRACE_TO_OPENER = 8 };

/* Values of millrace_packet.connection. NEW: the packet opens the connection, or repeats its opening.
 * ESTABLISHED: both sides have sent packets, or the packet is the first answer. RELATED: an ICMP error that quotes
 * a packet of the connection. INVALID: the packet belongs to no connection, or contradicts its state. */
enum {
    MILLRACE_UNTRACKED = 0,
    MILLRACE_NEW = 1,
    MILLRACE_ESTABLISHED = 2,
    MILLRACE_RELATED = 3,
    MILLRACE_INVALID = 4
};

/* Bits of millrace_packet.exceptions: TTL or hop limit of 0 or 1; IPv4 options or a hop-by-hop header; a
 * later fragment, without ports; a transport header that is cut or lies too deep. */
enum { MILLRACE_TTL = 1, MILLRACE_OPTIONS = 2, MILLRACE_FRAGMENT = 4, MILLRACE_CUT = 8 };

/* Verdicts. A plugin that uses more than the first three names the feature in the manifest: to-ports,
 * to-queues, to-instances, classify, hold, reject; as "features":["hold"]. */
enum {
    MILLRACE_PASS = 0,
    MILLRACE_DROP = 1,
    MILLRACE_CONSUME = 2,
    MILLRACE_TO_PORT = 3,
    MILLRACE_TO_PORTS = 4,
    MILLRACE_TO_QUEUE = 5,
    MILLRACE_TO_INSTANCE = 6,
    MILLRACE_CLASSIFY = 7,
    MILLRACE_HOLD = 8,
    MILLRACE_REJECT = 9
};

/* Value of millrace_packet.transport when there is no readable transport header. */
#define MILLRACE_NO_OFFSET 0xffff

/* Levels of millrace_log. */
enum { MILLRACE_ERROR = 0, MILLRACE_WARNING = 1, MILLRACE_INFORMATION = 2, MILLRACE_DEBUG = 3 };

_Static_assert(sizeof(struct millrace_call) == 24, "layout of millrace_call");
_Static_assert(offsetof(struct millrace_call, now) == 8, "layout of millrace_call");
_Static_assert(offsetof(struct millrace_call, packets) == 16, "layout of millrace_call");
_Static_assert(sizeof(struct millrace_packet) == 64, "layout of millrace_packet");
_Static_assert(offsetof(struct millrace_packet, window) == 8, "layout of millrace_packet");
_Static_assert(offsetof(struct millrace_packet, family) == 24, "layout of millrace_packet");
_Static_assert(offsetof(struct millrace_packet, state) == 32, "layout of millrace_packet");
_Static_assert(offsetof(struct millrace_packet, flow) == 40, "layout of millrace_packet");
_Static_assert(offsetof(struct millrace_packet, verdict) == 48, "layout of millrace_packet");
_Static_assert(offsetof(struct millrace_packet, connection) == 52, "layout of millrace_packet");
_Static_assert(offsetof(struct millrace_packet, until) == 56, "layout of millrace_packet");
_Static_assert(sizeof(struct millrace_flow_end) == 72, "layout of millrace_flow_end");
_Static_assert(offsetof(struct millrace_flow_end, source) == 16, "layout of millrace_flow_end");
_Static_assert(offsetof(struct millrace_flow_end, packets) == 48, "layout of millrace_flow_end");

_Static_assert(sizeof(struct millrace_waiting) == 56, "layout of millrace_waiting");
_Static_assert(offsetof(struct millrace_waiting, packets) == 8, "layout of millrace_waiting");
_Static_assert(offsetof(struct millrace_waiting, bytes) == 16, "layout of millrace_waiting");
_Static_assert(offsetof(struct millrace_waiting, payer_bytes) == 32, "layout of millrace_waiting");
_Static_assert(offsetof(struct millrace_waiting, payer_packets) == 48, "layout of millrace_waiting");

#ifdef __wasm__
#define MILLRACE_EXPORT(name) __attribute__((export_name(#name)))
#else
#define MILLRACE_EXPORT(name) __attribute__((visibility("default")))
#endif

/* Functions that the plugin defines: the first two always, the others as needed. */
MILLRACE_EXPORT(millrace_init) int32_t millrace_init(const uint8_t *settings, size_t bytes);
MILLRACE_EXPORT(millrace_packets) void millrace_packets(struct millrace_call *call);
MILLRACE_EXPORT(millrace_control)
int32_t millrace_control(const char *name, size_t name_bytes, const uint8_t *arguments, size_t bytes);
MILLRACE_EXPORT(millrace_periodic) void millrace_periodic(uint64_t now);
MILLRACE_EXPORT(millrace_flow_ended) void millrace_flow_ended(const struct millrace_flow_end *flow);
MILLRACE_EXPORT(millrace_message) void millrace_message(const uint8_t *bytes, size_t length);
MILLRACE_EXPORT(millrace_save) int32_t millrace_save(void);
MILLRACE_EXPORT(millrace_restore) int32_t millrace_restore(const uint8_t *state, size_t bytes, uint32_t version);

/* Functions that MILLRACE_PLUGIN defines. */
MILLRACE_EXPORT(millrace_abi) uint32_t millrace_abi(void);
MILLRACE_EXPORT(millrace_reserve) void *millrace_reserve(size_t bytes);
MILLRACE_EXPORT(millrace_release) void millrace_release(void *address, size_t bytes);

/* Returns an address as a pointer; NULL for 0. */
static inline void *millrace_at(uint64_t address) { return (void *)(uintptr_t)address; }

/* Returns the packet at an index below call->count. */
static inline struct millrace_packet *millrace_packet(const struct millrace_call *call, uint32_t index) {
    return (struct millrace_packet *)((uint8_t *)millrace_at(call->packets) + (size_t)index * call->packet_size);
}

/* Drops a packet for a plugin's own reason, 0 to 31. */
static inline void millrace_drop(struct millrace_packet *packet, uint8_t reason) {
    packet->verdict = MILLRACE_DROP;
    packet->reason = reason;
}

/* Drops a packet for a plugin's own reason, 0 to 31, and lets the router send an ICMP error to its source. */
static inline void millrace_reject(struct millrace_packet *packet, uint8_t reason) {
    packet->verdict = MILLRACE_REJECT;
    packet->reason = reason;
}

/* ---- Functions of the router -------------------------------------------------------------------------------- */

#ifdef __wasm__

#define MILLRACE_IMPORT(name) __attribute__((import_module("millrace"), import_name(#name)))
MILLRACE_IMPORT(fail) void millrace_raw_fail(const char *text, size_t bytes);
MILLRACE_IMPORT(reply) void millrace_raw_reply(const void *bytes, size_t length);
MILLRACE_IMPORT(log) void millrace_raw_log(uint32_t level, const char *text, size_t bytes);
MILLRACE_IMPORT(packet_read) uint32_t millrace_raw_packet_read(uint32_t packet, uint32_t offset, void *to, size_t bytes);
MILLRACE_IMPORT(packet_write)
uint32_t millrace_raw_packet_write(uint32_t packet, uint32_t offset, const void *from, size_t bytes);
MILLRACE_IMPORT(packet_resize) int32_t millrace_raw_packet_resize(uint32_t packet, int32_t bytes);
MILLRACE_IMPORT(packet_make) int32_t millrace_raw_packet_make(const void *bytes, size_t length, uint32_t port);
MILLRACE_IMPORT(flow_backlog) uint32_t millrace_raw_flow_backlog(uint32_t packet, void *to, size_t bytes);
MILLRACE_IMPORT(timer) void millrace_raw_timer(uint64_t nanoseconds);
MILLRACE_IMPORT(service_state) void *millrace_raw_service_state(void);
MILLRACE_IMPORT(map_get)
int32_t millrace_raw_map_get(uint32_t map, const void *key, size_t bytes, void *to, size_t room);
MILLRACE_IMPORT(map_set)
int32_t millrace_raw_map_set(uint32_t map, const void *key, size_t bytes, const void *from, size_t length);
MILLRACE_IMPORT(send) int32_t millrace_raw_send(const void *bytes, size_t length);
MILLRACE_IMPORT(map_remove) int32_t millrace_raw_map_remove(uint32_t map, const void *key, size_t bytes);
MILLRACE_IMPORT(request) int32_t millrace_raw_request(const char *json, size_t bytes);
MILLRACE_IMPORT(count) void millrace_raw_count(uint32_t counter, uint64_t number);
#define MILLRACE_CALL(name, absent, ...) millrace_raw_##name(__VA_ARGS__)
#define MILLRACE_TELL(name, ...) millrace_raw_##name(__VA_ARGS__)

#else

/* Table of functions that the router gives to a shared object. A function whose capability the manifest
 * doesn't list is NULL, or refuses; a refusal counts as a fault of the plugin. */
struct millrace_host {
    uint64_t size; /* bytes of this structure */
    void (*fail)(const char *text, size_t bytes);
    void (*reply)(const void *bytes, size_t length);
    void (*log)(uint32_t level, const char *text, size_t bytes);
    uint32_t (*packet_read)(uint32_t packet, uint32_t offset, void *to, size_t bytes);
    uint32_t (*packet_write)(uint32_t packet, uint32_t offset, const void *from, size_t bytes);
    int32_t (*packet_resize)(uint32_t packet, int32_t bytes);
    int32_t (*packet_make)(const void *bytes, size_t length, uint32_t port);
    uint32_t (*flow_backlog)(uint32_t packet, void *to, size_t bytes);
    void (*timer)(uint64_t nanoseconds);
    int32_t (*request)(const char *json, size_t bytes);
    void *(*service_state)(void);
    int32_t (*map_get)(uint32_t map, const void *key, size_t bytes, void *to, size_t room);
    int32_t (*map_set)(uint32_t map, const void *key, size_t bytes, const void *from, size_t length);
    int32_t (*map_remove)(uint32_t map, const void *key, size_t bytes);
    int32_t (*send)(const void *bytes, size_t length);
    void (*count)(uint32_t counter, uint64_t number);
};
_Static_assert(sizeof(struct millrace_host) == 8 + 16 * sizeof(void *), "layout of millrace_host");

/* Whether the router's table has a function. The table of an older router is shorter. */
#define MILLRACE_HAS(name)                                                                                            \
    (millrace_table && millrace_table->size >= offsetof(struct millrace_host, name) + sizeof(void *) && millrace_table->name)

/* Table that the router gave; MILLRACE_PLUGIN defines the variable. */
extern const struct millrace_host *millrace_table __attribute__((visibility("hidden")));
#define MILLRACE_CALL(name, absent, ...) \
    (MILLRACE_HAS(name) ? millrace_table->name(__VA_ARGS__) : (absent))
#define MILLRACE_TELL(name, ...)                        \
    do {                                                \
        if (MILLRACE_HAS(name))                         \
            millrace_table->name(__VA_ARGS__);          \
    } while (0)

#endif

/* Returns the length of a text, as strlen, which a module doesn't have. */
static inline size_t millrace_length(const char *text) {
    size_t length = 0;
    while (text[length])
        length++;
    return length;
}

/* Gives the reason why init, control, save or restore fails. Returns 1, for use as
 * `return millrace_fail("...")`. */
static inline int32_t millrace_fail(const char *text) {
    MILLRACE_TELL(fail, text, millrace_length(text));
    return 1;
}

/* Gives the answer: JSON, or state in any form. Returns 0, for use as `return millrace_reply(...)`. */
static inline int32_t millrace_reply(const void *bytes, size_t length) {
    MILLRACE_TELL(reply, bytes, length);
    return 0;
}

/* Writes a line to the daemon's log, at most 10 a second. Capability log. */
static inline void millrace_log(uint32_t level, const char *text) {
    MILLRACE_TELL(log, level, text, millrace_length(text));
}

/* Reads bytes of a packet, also behind the window. Returns the number of bytes read. Capability
 * packet-read. */
static inline uint32_t millrace_read(const struct millrace_packet *packet, uint32_t offset, void *to, size_t bytes) {
    return MILLRACE_CALL(packet_read, 0, packet->number, offset, to, bytes);
}

/* Writes bytes of a packet, also behind the window. Returns the number of bytes written. Capability
 * packet-write. */
static inline uint32_t millrace_write(struct millrace_packet *packet, uint32_t offset, const void *from, size_t bytes) {
    return MILLRACE_CALL(packet_write, 0, packet->number, offset, from, bytes);
}

/* Adds `bytes` bytes at the front; a negative number cuts bytes there. Returns whether that was possible.
 * Afterwards millrace_read gives the new content of the window. Capability packet-resize. */
static inline bool millrace_resize(struct millrace_packet *packet, int32_t bytes) {
    return MILLRACE_CALL(packet_resize, 1, packet->number, bytes) == 0;
}

/* Sends a packet of the plugin's own, given from the network header on. The router forwards it as if it
 * had arrived at the port. Returns whether there was packet memory. Capability packet-make. */
static inline bool millrace_make(const void *bytes, size_t length, uint16_t port) {
    return MILLRACE_CALL(packet_make, 1, bytes, length, port) == 0;
}

/* Returns the backlog before a packet: in the queue that it currently leads to, at this instance, and of the
 * principal that pays for the call. Returns false where the router doesn't tell. With an older router, nobody
 * pays. Capability flow-backlog. */
static inline bool millrace_backlog(const struct millrace_packet *packet, struct millrace_waiting *waiting) {
    waiting->payer_bytes = waiting->payer_packets = waiting->paid = 0;
    waiting->allowance = MILLRACE_NO_ALLOWANCE;
    uint32_t written = MILLRACE_CALL(flow_backlog, 0, packet->number, waiting, sizeof *waiting);
    return written >= offsetof(struct millrace_waiting, payer_bytes);
}

/* Returns the state common to all flows of the instance, with the size that the manifest's service-state
 * gives; NULL without that key. It is zero at first. The router keeps it when the plugin restarts after a
 * fault, and for the next version. The address is constant as long as the plugin runs. */
static inline void *millrace_service(void) { return MILLRACE_CALL(service_state, NULL); }

/* Results of map functions. DONE. ABSENT: no such key. FULL: no room for another key. REFUSED: no map of
 * that number, other sizes of keys or values, a map that another instance writes, or a plugin that is
 * still starting. */
enum { MILLRACE_DONE = 0, MILLRACE_ABSENT = 1, MILLRACE_FULL = 2, MILLRACE_REFUSED = 3 };

/* Reads the value of a key, in this worker's copy of the map or else in another's. A map's number is its
 * index among the manifest's maps, or the value of a setting whose format is "map". Capability map-read. */
static inline int32_t millrace_map_get(uint32_t map, const void *key, size_t bytes, void *to, size_t room) {
    return MILLRACE_CALL(map_get, MILLRACE_REFUSED, map, key, bytes, to, room);
}

/* Sets the value of a key of an own map. Capability map-write. */
static inline int32_t millrace_map_set(uint32_t map, const void *key, size_t bytes, const void *from, size_t length) {
    return MILLRACE_CALL(map_set, MILLRACE_REFUSED, map, key, bytes, from, length);
}

/* Removes a key of an own map. Capability map-write. */
static inline int32_t millrace_map_remove(uint32_t map, const void *key, size_t bytes) {
    return MILLRACE_CALL(map_remove, MILLRACE_REFUSED, map, key, bytes);
}

/* Sends a message of up to 16 KiB to the other part of the plugin, whose millrace_message gets it. Returns
 * whether the router accepted it. The message may still be lost where too many wait. Capability message. */
static inline bool millrace_send(const void *bytes, size_t length) { return MILLRACE_CALL(send, 1, bytes, length) == 0; }

/* Sends a packet to the other part, from its link header on: up to 2,048 bytes of it. Capabilities message and packet-read. */
static inline bool millrace_punt(const struct millrace_packet *packet) {
    uint8_t bytes[2048];
    return millrace_send(bytes, millrace_read(packet, 0, bytes, sizeof bytes));
}

/* Schedules one call of millrace_periodic, `nanoseconds` from now. Capability timer. */
static inline void millrace_timer(uint64_t nanoseconds) { MILLRACE_TELL(timer, nanoseconds); }

/* Adds to one of the manifest's counters, given by its index. `millrace show instances` has the sums over
 * all workers. */
static inline void millrace_count(uint32_t counter, uint64_t number) { MILLRACE_TELL(count, counter, number); }

/* Requests a change of filters, routes, queues or instances, as JSON; control makes it later. Returns
 * whether it was accepted. Capability request, or one for a kind of change, as request-routes. */
static inline bool millrace_request(const char *json) {
    return MILLRACE_CALL(request, 1, json, millrace_length(json)) == 0;
}

/* ---- Writing JSON ------------------------------------------------------------------------------------------- */

/* Text that grows in memory of the plugin. A text that doesn't fit is cut, and `full` is set. Start with
 * `struct millrace_text text = {memory, sizeof memory, 0, false};` */
struct millrace_text {
    char *memory;
    size_t size;
    size_t length;
    bool full;
};

/* Adds a text unchanged. */
static inline void millrace_add(struct millrace_text *to, const char *text) {
    for (; *text; text++) {
        if (to->length == to->size) {
            to->full = true;
            return;
        }
        to->memory[to->length++] = *text;
    }
}

/* Adds a number. */
static inline void millrace_add_number(struct millrace_text *to, uint64_t number) {
    char digits[21];
    size_t first = sizeof digits - 1;
    digits[first] = 0;
    do {
        digits[--first] = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    millrace_add(to, digits + first);
}

/* Answers with the text, or refuses when it did not fit. */
static inline int32_t millrace_reply_text(const struct millrace_text *text) {
    return text->full ? millrace_fail("the answer is too long") : millrace_reply(text->memory, text->length);
}

/* ---- Reading JSON ------------------------------------------------------------------------------------------- */

/* Part of a JSON text, in place; `start` is NULL where there is none. */
struct millrace_json {
    const char *start;
    size_t length;
};

/* Returns the end of the value that begins at `from`. The search skips strings as a whole and counts
 * brackets. */
static inline size_t millrace_json_end(const char *text, size_t length, size_t from) {
    size_t at = from, levels = 0;
    while (at < length) {
        char c = text[at];
        if (c == '"') {
            for (at++; at < length && text[at] != '"'; at++)
                if (text[at] == '\\')
                    at++;
            at = at < length ? at + 1 : length;
        } else if (c == '{' || c == '[') {
            levels++;
            at++;
        } else if (c == '}' || c == ']') {
            if (levels == 0)
                return at;
            levels--;
            at++;
        } else if (levels == 0 && (c == ',' || c == ':' || c == ' ' || c == '\t' || c == '\n' || c == '\r')) {
            return at;
        } else {
            at++;
            continue;
        }
        if (levels == 0)
            return at;
    }
    return length;
}

/* Returns the first index from `at` on behind blanks and, if it is not 0, the character `more`. */
static inline size_t millrace_json_skip(const char *text, size_t length, size_t at, char more) {
    while (at < length && (text[at] == ' ' || text[at] == '\t' || text[at] == '\n' || text[at] == '\r' ||
                           (more && text[at] == more)))
        at++;
    return at;
}

/* Whether the part is this text, quotes included. */
static inline bool millrace_json_is(struct millrace_json piece, const char *text) {
    size_t at = 0;
    while (at < piece.length && text[at] && piece.start[at] == text[at])
        at++;
    return piece.start && at == piece.length && !text[at];
}

/* Reads the next key and value of an object; `at` is 0 at first. Returns whether there was one. The key
 * has its quotes. */
static inline bool millrace_json_next(const void *object, size_t length, size_t *at, struct millrace_json *key,
                                      struct millrace_json *value) {
    const char *text = object;
    size_t from = millrace_json_skip(text, length, *at, *at == 0 ? '{' : ',');
    if (from >= length || text[from] != '"')
        return false;
    size_t end = millrace_json_end(text, length, from);
    *key = (struct millrace_json){text + from, end - from};
    from = millrace_json_skip(text, length, end, ':');
    end = millrace_json_end(text, length, from);
    *value = (struct millrace_json){text + from, end - from};
    *at = end;
    return end > from;
}

/* Returns the value of a key, which is given with its quotes:
 * millrace_json_get(settings, bytes, "\"rate\""). */
static inline struct millrace_json millrace_json_get(const void *object, size_t length, const char *key) {
    struct millrace_json name, value;
    size_t at = 0;
    while (millrace_json_next(object, length, &at, &name, &value))
        if (millrace_json_is(name, key))
            return value;
    return (struct millrace_json){NULL, 0};
}

/* Reads an integer from 0 to `most`. Returns whether the part is one. */
static inline bool millrace_json_number(struct millrace_json piece, uint64_t most, uint64_t *number) {
    uint64_t sum = 0;
    for (size_t at = 0; at < piece.length; at++) {
        uint64_t digit = (uint64_t)(uint8_t)piece.start[at] - '0';
        if (digit > 9 || sum > most / 10 || sum * 10 > most - digit)
            return false;
        sum = sum * 10 + digit;
    }
    *number = sum;
    return piece.start && piece.length > 0;
}

/* ---- Definitions of MILLRACE_PLUGIN -------------------------------------------------------------------------- */

#ifdef __wasm__

/* The C compiler emits calls of these functions by itself. */
void *memcpy(void *to, const void *from, size_t bytes);
void *memmove(void *to, const void *from, size_t bytes);
void *memset(void *to, int byte, size_t bytes);
int memcmp(const void *a, const void *b, size_t bytes);

#define MILLRACE_MEMORY_FUNCTIONS                                                                           \
    __attribute__((no_builtin("memcpy"))) void *memcpy(void *to, const void *from, size_t bytes) {          \
        for (size_t at = 0; at < bytes; at++)                                                               \
            ((uint8_t *)to)[at] = ((const uint8_t *)from)[at];                                              \
        return to;                                                                                          \
    }                                                                                                       \
    __attribute__((no_builtin("memmove"))) void *memmove(void *to, const void *from, size_t bytes) {        \
        if ((uintptr_t)to <= (uintptr_t)from)                                                               \
            return memcpy(to, from, bytes);                                                                 \
        for (size_t at = bytes; at > 0; at--)                                                               \
            ((uint8_t *)to)[at - 1] = ((const uint8_t *)from)[at - 1];                                      \
        return to;                                                                                          \
    }                                                                                                       \
    __attribute__((no_builtin("memset"))) void *memset(void *to, int byte, size_t bytes) {                  \
        for (size_t at = 0; at < bytes; at++)                                                               \
            ((uint8_t *)to)[at] = (uint8_t)byte;                                                            \
        return to;                                                                                          \
    }                                                                                                       \
    int memcmp(const void *a, const void *b, size_t bytes) {                                                \
        for (size_t at = 0; at < bytes; at++)                                                               \
            if (((const uint8_t *)a)[at] != ((const uint8_t *)b)[at])                                       \
                return ((const uint8_t *)a)[at] - ((const uint8_t *)b)[at];                                 \
        return 0;                                                                                           \
    }

/* Memory: blocks of powers of two from 16 bytes on, with a list of free blocks for each size, and the
 * unused end of the module's memory. A plugin may use it too. */
extern uint8_t __heap_base;
/* MILLRACE_PLUGIN defines them. */
extern void *millrace_free[32];
extern uintptr_t millrace_unused;

static inline uint32_t millrace_class(size_t bytes) {
    return bytes <= 16 ? 4 : 32 - (uint32_t)__builtin_clz((uint32_t)bytes - 1);
}

static inline void *millrace_allocate(size_t bytes) {
    if (bytes > (1u << 30))
        return NULL;
    uint32_t class = millrace_class(bytes);
    void **piece = millrace_free[class];
    if (piece) {
        millrace_free[class] = *piece;
        return piece;
    }
    if (!millrace_unused)
        millrace_unused = ((uintptr_t)&__heap_base + 15) & ~(uintptr_t)15;
    uint64_t end = (uint64_t)millrace_unused + (1u << class);
    uint64_t have = (uint64_t)__builtin_wasm_memory_size(0) << 16;
    if (end > have && __builtin_wasm_memory_grow(0, (size_t)((end - have + 0xffff) >> 16)) == (size_t)-1)
        return NULL;
    piece = (void **)millrace_unused;
    millrace_unused = (uintptr_t)end;
    return piece;
}

static inline void millrace_give_back(void *piece, size_t bytes) {
    uint32_t class = millrace_class(bytes);
    *(void **)piece = millrace_free[class];
    millrace_free[class] = piece;
}

#define MILLRACE_HOME(manifest)                                                                      \
    /* The custom section of the module; asm, since clang would make data of a variable. */          \
    __asm__(".section .custom_section.millrace.manifest,\"\",@\n"                                    \
            ".ascii " MILLRACE_QUOTED(manifest) "\n"                                                 \
            ".text\n");                                                                              \
    void *millrace_free[32];                                                                         \
    uintptr_t millrace_unused;                                                                       \
    MILLRACE_MEMORY_FUNCTIONS

#else

static inline void *millrace_allocate(size_t bytes) { return malloc(bytes ? bytes : 1); }
static inline void millrace_give_back(void *piece, size_t bytes) {
    (void)bytes;
    free(piece);
}

MILLRACE_EXPORT(millrace_manifest) const char *millrace_manifest(void);
MILLRACE_EXPORT(millrace_attach) void millrace_attach(const struct millrace_host *table);

/* Bytes behind the manifest, into which `millrace plugin bench --write` writes the measured cost. */
#define MILLRACE_ROOM 512

#define MILLRACE_HOME(manifest)                                                \
    const struct millrace_host *millrace_table;                                \
    /* The router reads the section, and checks it before any code runs. */    \
    static const char millrace_manifest_text[sizeof(manifest) + MILLRACE_ROOM] \
        __attribute__((used, section("millrace.manifest"))) = manifest;        \
    const char *millrace_manifest(void) { return millrace_manifest_text; }     \
    void millrace_attach(const struct millrace_host *table) {                  \
        millrace_table = table;                                                \
    }

#endif

#define MILLRACE_QUOTED(text) #text

#ifdef MILLRACE_EXECUTABLE
#include "millrace-process.h"
#else
#define MILLRACE_MAIN
#endif

/* Defines the manifest, given as JSON in a string literal, and the exports that all plugins share. */
#define MILLRACE_PLUGIN(manifest)                                             \
    MILLRACE_HOME(manifest)                                                   \
    MILLRACE_MAIN                                                             \
    uint32_t millrace_abi(void) { return MILLRACE_ABI_VERSION; }              \
    void *millrace_reserve(size_t bytes) { return millrace_allocate(bytes); } \
    void millrace_release(void *address, size_t bytes) {                      \
        if (address)                                                          \
            millrace_give_back(address, bytes);                               \
    }                                                                         \
    _Static_assert(sizeof(manifest) > 2, "the manifest is JSON in a string literal")

#endif
