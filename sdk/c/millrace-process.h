/*
 * millrace-process.h: process's side of an executable. millrace.h includes it if MILLRACE_EXECUTABLE is
 * defined; then MILLRACE_PLUGIN defines the main function, too:
 *
 *   cc -O2 -static-pie -fPIE -DMILLRACE_EXECUTABLE -o plugin.elf plugin.c
 *
 * The router executes the file for each instance at each worker. Standard output is the memory that the
 * process shares with the worker; docs/plugin-process.md describes it.
 */
#ifndef MILLRACE_PROCESS_H
#define MILLRACE_PROCESS_H

#ifndef __linux__
#error "executables run on Linux"
#endif

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* -std=c11 hides the declarations of the C library. */
long syscall(long number, ...);
int sched_getcpu(void);
int clock_gettime(int clock, struct timespec *time);

/* The plugin defines these functions as needed. */
int32_t millrace_control(const char *name, size_t name_bytes, const uint8_t *arguments, size_t bytes) __attribute__((weak));
void millrace_periodic(uint64_t now) __attribute__((weak));
void millrace_flow_ended(const struct millrace_flow_end *flow) __attribute__((weak));
void millrace_message(const uint8_t *bytes, size_t length) __attribute__((weak));
int32_t millrace_save(void) __attribute__((weak));
int32_t millrace_restore(const uint8_t *state, size_t bytes, uint32_t version) __attribute__((weak));

/* Version of the memory. */
#define MILLRACE_PROCESS_VERSION 2
/* Bytes of a record, at most. */
#define MILLRACE_MOST_BYTES (4u << 20)
/* Bytes that a host function returns, at most, and that packet_write passes at a time. */
#define MILLRACE_MOST_PIECE 4096
/* Bytes of an error text or a line, at most. */
#define MILLRACE_MOST_TEXT 1024

/*
 * Words of the memory: numbers of written and read words of both rings, time of looks, bell, sizes, address of the
 * memory, processor, rings, service state.
 */
enum {
    MILLRACE_REQUESTS_POSTED = 0,
    MILLRACE_REQUESTS_TAKEN = 8,
    MILLRACE_LOOKED = 9,
    MILLRACE_ANSWERS_POSTED = 16,
    MILLRACE_ANSWERS_TAKEN = 24,
    MILLRACE_BELL = 32,
    MILLRACE_VERSION = 40,
    MILLRACE_SERVICE_BYTES = 43,
    MILLRACE_ADDRESS = 44,
    MILLRACE_PROCESSOR = 48,
    MILLRACE_REQUESTS = 64,
    MILLRACE_REQUEST_WORDS = 2048,
    MILLRACE_ANSWERS = MILLRACE_REQUESTS + MILLRACE_REQUEST_WORDS,
    MILLRACE_ANSWER_WORDS = 4096,
    MILLRACE_SERVICE = MILLRACE_ANSWERS + MILLRACE_ANSWER_WORDS
};

/* Kinds of requests. */
enum {
    MILLRACE_INIT = 1,
    MILLRACE_PACKETS = 2,
    MILLRACE_CONTROL = 3,
    MILLRACE_PERIODIC = 4,
    MILLRACE_FLOW_ENDED = 5,
    MILLRACE_MESSAGE = 6,
    MILLRACE_SAVE = 7,
    MILLRACE_RESTORE = 8,
    MILLRACE_RESULT = 9
};

/* Kinds of answers. */
enum {
    MILLRACE_ENDED = 0,
    MILLRACE_FAIL = 1,
    MILLRACE_REPLY = 2,
    MILLRACE_LOG = 3,
    MILLRACE_PACKET_READ = 4,
    MILLRACE_PACKET_WRITE = 5,
    MILLRACE_PACKET_RESIZE = 6,
    MILLRACE_PACKET_MAKE = 7,
    MILLRACE_FLOW_BACKLOG = 8,
    MILLRACE_TIMER = 9,
    MILLRACE_REQUEST = 10,
    MILLRACE_MAP_GET = 12,
    MILLRACE_MAP_SET = 13,
    MILLRACE_MAP_REMOVE = 14,
    MILLRACE_SEND = 15,
    MILLRACE_COUNT = 16
};

/* Bits of the second field of MILLRACE_ENDED. */
enum { MILLRACE_MISSING = 1, MILLRACE_HEARS_FLOW_ENDS = 2, MILLRACE_SAVES = 4 };

/* Record of a ring without its bytes. */
struct millrace_record {
    uint32_t kind;
    uint32_t length;
    uint64_t first, second;
};

/* State of the process. A plugin has one instance in a process, and calls host functions on one thread. */
static struct {
    uint64_t *words;
    uint64_t taken, there; /* words of requests that were read, and further words known to be there */
    uint64_t posted;       /* words of answers that were written */
    uint64_t looked;       /* nanoseconds of looks for requests */
    uint8_t *bytes;        /* bytes of the request */
    size_t room;
} millrace_own __attribute__((unused));

/* Ends the process. The router reports the reason. */
static inline _Noreturn void millrace_quit(const char *why) {
    fprintf(stderr, "%s\n", why);
    exit(1);
}

static inline uint64_t millrace_index(int at) { return __atomic_load_n(millrace_own.words + at, __ATOMIC_ACQUIRE); }
static inline void millrace_publish(int at, uint64_t index) {
    __atomic_store_n(millrace_own.words + at, index, __ATOMIC_RELEASE);
}

/* Sleeps until the worker rings the bell, unless words have arrived. */
static inline void millrace_sleep(void) {
    uint32_t *bell = (uint32_t *)(millrace_own.words + MILLRACE_BELL);
    __atomic_store_n(bell, 1, __ATOMIC_RELAXED);
    /* The worker writes words and reads the bell; this writes the bell and reads the words. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (millrace_index(MILLRACE_REQUESTS_POSTED) == millrace_own.taken)
        syscall(SYS_futex, bell, 0 /* FUTEX_WAIT */, 1, NULL);
    __atomic_store_n(bell, 0, __ATOMIC_RELAXED);
}

/* Whether this process has the processor from which the worker has sent the last request. */
static inline int millrace_shares_processor(void) {
    uint64_t own = (uint64_t)(sched_getcpu() + 1); /* 0: unknown */
    return own && __atomic_load_n(millrace_own.words + MILLRACE_PROCESSOR, __ATOMIC_RELAXED) == own;
}

/* Returns the time of a clock that only moves forward, in nanoseconds. */
static inline uint64_t millrace_clock(void) {
    struct timespec time = {0, 0};
    clock_gettime(1 /* CLOCK_MONOTONIC */, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Looks for words of requests for about 50 microseconds. Returns their number, or 0. */
static inline uint64_t millrace_look(void) {
    for (int look = 0; look < 1024; look++) {
        uint64_t there = millrace_index(MILLRACE_REQUESTS_POSTED) - millrace_own.taken;
        if (there > MILLRACE_REQUEST_WORDS)
            millrace_quit("the router moved an index of a ring by more than the ring holds");
        if (there)
            return there;
        /* On the worker's processor, nothing arrives while the process looks. */
        if (look % 16 == 15 || millrace_shares_processor()) {
            look |= 15;
            sched_yield();
        }
    }
    return 0;
}

/* Waits for words of requests: looks, and then sleeps. Tells the worker the time of the looks. */
static inline uint64_t millrace_arrived(void) {
    for (;;) {
        uint64_t begun = millrace_clock(), there = millrace_look();
        millrace_own.looked += millrace_clock() - begun;
        __atomic_store_n(millrace_own.words + MILLRACE_LOOKED, millrace_own.looked, __ATOMIC_RELAXED);
        if (there)
            return there;
        millrace_sleep();
    }
}

/* Removes the next word of the ring of requests. */
static inline uint64_t millrace_take(void) {
    if (!millrace_own.there) {
        millrace_publish(MILLRACE_REQUESTS_TAKEN, millrace_own.taken);
        millrace_own.there = millrace_arrived();
    }
    millrace_own.there--;
    uint64_t at = millrace_own.taken++ % MILLRACE_REQUEST_WORDS;
    return __atomic_load_n(millrace_own.words + MILLRACE_REQUESTS + at, __ATOMIC_RELAXED);
}

/* Removes the first words of the next record. */
static inline struct millrace_record millrace_head(void) {
    uint64_t start = millrace_take(), first = millrace_take(), second = millrace_take();
    return (struct millrace_record){(uint32_t)start, (uint32_t)(start >> 32), first, second};
}

/* Removes the bytes of a record. Without room, drops the rest. */
static inline void millrace_body(struct millrace_record record, uint8_t *to, size_t room) {
    for (size_t at = 0; at < record.length; at += 8) {
        uint64_t word = millrace_take();
        if (at < room)
            memcpy(to + at, &word, room - at < 8 ? room - at : 8);
    }
    millrace_publish(MILLRACE_REQUESTS_TAKEN, millrace_own.taken);
}

/* Appends a word to the ring of answers, when the ring has room. */
static inline void millrace_put(uint64_t word) {
    uint64_t used;
    while ((used = millrace_own.posted - millrace_index(MILLRACE_ANSWERS_TAKEN)) >= MILLRACE_ANSWER_WORDS) {
        if (used > MILLRACE_ANSWER_WORDS)
            millrace_quit("the router moved an index of a ring by more than the ring holds");
        millrace_publish(MILLRACE_ANSWERS_POSTED, millrace_own.posted);
        sched_yield();
    }
    uint64_t at = millrace_own.posted++ % MILLRACE_ANSWER_WORDS;
    __atomic_store_n(millrace_own.words + MILLRACE_ANSWERS + at, word, __ATOMIC_RELAXED);
}

static inline void millrace_answer(uint32_t kind, uint64_t first, uint64_t second, const void *bytes, size_t length) {
    millrace_put(kind | (uint64_t)length << 32);
    millrace_put(first);
    millrace_put(second);
    for (size_t at = 0; at < length; at += 8) {
        uint64_t word = 0;
        memcpy(&word, (const uint8_t *)bytes + at, length - at < 8 ? length - at : 8);
        millrace_put(word);
    }
    millrace_publish(MILLRACE_ANSWERS_POSTED, millrace_own.posted);
}

/* Waits for the result of a host function. */
static inline int32_t millrace_result(void *to, size_t room) {
    struct millrace_record result = millrace_head();
    if (result.kind != MILLRACE_RESULT)
        millrace_quit("the router sent a request instead of a result");
    millrace_body(result, to, room);
    return (int32_t)result.first;
}

/* ---- Host functions ----------------------------------------------------------------------------------------- */

static inline size_t millrace_least(size_t a, size_t b) { return a < b ? a : b; }

static void millrace_own_fail(const char *text, size_t bytes) {
    millrace_answer(MILLRACE_FAIL, 0, 0, text, millrace_least(bytes, MILLRACE_MOST_TEXT));
}

static void millrace_own_reply(const void *bytes, size_t length) {
    static const char text[] = "the reply is too long";
    if (length > MILLRACE_MOST_BYTES)
        millrace_own_fail(text, sizeof text - 1);
    else
        millrace_answer(MILLRACE_REPLY, 0, 0, bytes, length);
}

static void millrace_own_log(uint32_t level, const char *text, size_t bytes) {
    millrace_answer(MILLRACE_LOG, level, 0, text, millrace_least(bytes, MILLRACE_MOST_TEXT));
}

static uint32_t millrace_own_packet_read(uint32_t packet, uint32_t offset, void *to, size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
        size_t wanted = millrace_least(bytes - done, MILLRACE_MOST_PIECE);
        millrace_answer(MILLRACE_PACKET_READ, packet, (uint32_t)(offset + done) | (uint64_t)wanted << 32, NULL, 0);
        int32_t came = millrace_result((uint8_t *)to + done, wanted);
        size_t read = came < 0 ? 0 : millrace_least((size_t)came, wanted);
        done += read;
        if (read < wanted)
            break;
    }
    return (uint32_t)done;
}

static uint32_t millrace_own_packet_write(uint32_t packet, uint32_t offset, const void *from, size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
        size_t wanted = millrace_least(bytes - done, MILLRACE_MOST_PIECE);
        millrace_answer(MILLRACE_PACKET_WRITE, packet, (uint32_t)(offset + done), (const uint8_t *)from + done, wanted);
        int32_t came = millrace_result(NULL, 0);
        size_t written = came < 0 ? 0 : millrace_least((size_t)came, wanted);
        done += written;
        if (written < wanted)
            break;
    }
    return (uint32_t)done;
}

static int32_t millrace_own_packet_resize(uint32_t packet, int32_t bytes) {
    millrace_answer(MILLRACE_PACKET_RESIZE, packet, (uint32_t)bytes, NULL, 0);
    return millrace_result(NULL, 0);
}

static int32_t millrace_own_packet_make(const void *bytes, size_t length, uint32_t port) {
    if (length > MILLRACE_MOST_BYTES)
        return 1;
    millrace_answer(MILLRACE_PACKET_MAKE, port, 0, bytes, length);
    return millrace_result(NULL, 0);
}

static uint32_t millrace_own_flow_backlog(uint32_t packet, void *to, size_t bytes) {
    millrace_answer(MILLRACE_FLOW_BACKLOG, packet, 0, NULL, 0);
    int32_t written = millrace_result(to, bytes);
    return written <= 0 ? 0 : (uint32_t)millrace_least((size_t)written, bytes);
}

static void millrace_own_timer(uint64_t nanoseconds) { millrace_answer(MILLRACE_TIMER, nanoseconds, 0, NULL, 0); }

static int32_t millrace_own_request(const char *json, size_t bytes) {
    if (bytes > MILLRACE_MOST_BYTES)
        return 1;
    millrace_answer(MILLRACE_REQUEST, 0, 0, json, bytes);
    return millrace_result(NULL, 0);
}

static void *millrace_own_service_state(void) {
    return millrace_own.words[MILLRACE_SERVICE_BYTES] ? millrace_own.words + MILLRACE_SERVICE : NULL;
}

static int32_t millrace_own_map_get(uint32_t map, const void *key, size_t bytes, void *to, size_t room) {
    uint8_t value[256];
    if (bytes > 64 || room > sizeof value)
        return MILLRACE_REFUSED;
    millrace_answer(MILLRACE_MAP_GET, map, room, key, bytes);
    int32_t found = millrace_result(value, sizeof value);
    if (found == MILLRACE_DONE)
        memcpy(to, value, room);
    return found;
}

static int32_t millrace_own_map_set(uint32_t map, const void *key, size_t bytes, const void *from, size_t length) {
    uint8_t both[64 + 256];
    if (bytes > 64 || length > 256)
        return MILLRACE_REFUSED;
    memcpy(both, key, bytes);
    memcpy(both + bytes, from, length);
    millrace_answer(MILLRACE_MAP_SET, map, bytes, both, bytes + length);
    return millrace_result(NULL, 0);
}

static int32_t millrace_own_map_remove(uint32_t map, const void *key, size_t bytes) {
    if (bytes > 64)
        return MILLRACE_REFUSED;
    millrace_answer(MILLRACE_MAP_REMOVE, map, 0, key, bytes);
    return millrace_result(NULL, 0);
}

static int32_t millrace_own_send(const void *bytes, size_t length) {
    if (length > MILLRACE_MOST_BYTES)
        return 1;
    millrace_answer(MILLRACE_SEND, 0, 0, bytes, length);
    return millrace_result(NULL, 0);
}

static void millrace_own_count(uint32_t counter, uint64_t number) {
    millrace_answer(MILLRACE_COUNT, counter, number, NULL, 0);
}

static const struct millrace_host millrace_own_host __attribute__((unused)) = {
    .size = sizeof(struct millrace_host),
    .fail = millrace_own_fail,
    .reply = millrace_own_reply,
    .log = millrace_own_log,
    .packet_read = millrace_own_packet_read,
    .packet_write = millrace_own_packet_write,
    .packet_resize = millrace_own_packet_resize,
    .packet_make = millrace_own_packet_make,
    .flow_backlog = millrace_own_flow_backlog,
    .timer = millrace_own_timer,
    .request = millrace_own_request,
    .service_state = millrace_own_service_state,
    .map_get = millrace_own_map_get,
    .map_set = millrace_own_map_set,
    .map_remove = millrace_own_map_remove,
    .send = millrace_own_send,
    .count = millrace_own_count,
};

/* ---- Requests ----------------------------------------------------------------------------------------------- */

/* Calls the plugin with packets. */
static inline void millrace_handle(uint32_t count, uint64_t now) {
    uint64_t service = (millrace_own.words[MILLRACE_SERVICE_BYTES] + 7) / 8;
    uint64_t *place = millrace_own.words + MILLRACE_SERVICE + (service + 7) / 8 * 8;
    struct millrace_packet *packets = (struct millrace_packet *)place;
    struct millrace_call call = {sizeof call, sizeof *packets, count, now, (uint64_t)(uintptr_t)packets};
    millrace_packets(&call);
}

/* Carries out a request. Returns the number that the plugin returns, and sets bits of MILLRACE_ENDED. */
static inline int32_t millrace_carry_out(struct millrace_record request, uint64_t *bits) {
    uint8_t *bytes = millrace_own.bytes;
    size_t length = request.length, name = request.first < length ? (size_t)request.first : length;
    struct millrace_flow_end *flow = (struct millrace_flow_end *)bytes;
    switch (request.kind) {
    case MILLRACE_INIT:
        *bits = (millrace_flow_ended ? MILLRACE_HEARS_FLOW_ENDS : 0) | (millrace_save ? MILLRACE_SAVES : 0);
        return millrace_init(bytes, length);
    case MILLRACE_PACKETS:
        millrace_handle((uint32_t)request.first, request.second);
        return 0;
    case MILLRACE_CONTROL:
        if (millrace_control)
            return millrace_control((const char *)bytes, name, bytes + name, length - name);
        break;
    case MILLRACE_PERIODIC:
        if (millrace_periodic)
            millrace_periodic(request.first);
        return 0;
    case MILLRACE_FLOW_ENDED:
        if (millrace_flow_ended && length >= sizeof *flow) {
            flow->state = length > sizeof *flow ? (uint64_t)(uintptr_t)(flow + 1) : 0;
            millrace_flow_ended(flow);
        }
        return 0;
    case MILLRACE_MESSAGE:
        if (millrace_message)
            millrace_message(bytes, length);
        return 0;
    case MILLRACE_SAVE:
        if (millrace_save)
            return millrace_save();
        break;
    case MILLRACE_RESTORE:
        if (millrace_restore)
            return millrace_restore(bytes, length, (uint32_t)request.first);
        break;
    }
    *bits = MILLRACE_MISSING;
    return 0;
}

/* Maps the memory on standard output. */
static inline void millrace_map(void) {
    off_t size = lseek(1, 0, SEEK_END);
    if (size < (MILLRACE_SERVICE + 1) * 8)
        millrace_quit("standard output is no memory of a router; only the router starts this program");
    void *words = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, 1, 0);
    if (words == MAP_FAILED)
        millrace_quit("can't map the memory that it shares with the router");
    millrace_own.words = words;
    if (millrace_own.words[MILLRACE_VERSION] != MILLRACE_PROCESS_VERSION)
        millrace_quit("the memory that it shares with the router has another version: rebuild the plugin");
    /* The worker then describes packets by addresses in this process. */
    __atomic_store_n(millrace_own.words + MILLRACE_ADDRESS, (uint64_t)(uintptr_t)words, __ATOMIC_RELAXED);
}

/* Serves the worker at the other end of standard output. Returns only by ending the process. */
static inline _Noreturn void millrace_serve(void) {
    millrace_map();
    millrace_attach(&millrace_own_host);
    for (;;) {
        struct millrace_record request = millrace_head();
        if (request.length > MILLRACE_MOST_BYTES)
            millrace_quit("the router announced a record above the limit");
        if (request.length + 8 > millrace_own.room) {
            free(millrace_own.bytes);
            millrace_own.room = request.length + 8;
            millrace_own.bytes = malloc(millrace_own.room);
            if (!millrace_own.bytes)
                millrace_quit("there is no memory for a request");
        }
        millrace_body(request, millrace_own.bytes, millrace_own.room);
        uint64_t bits = 0;
        int32_t code = millrace_carry_out(request, &bits);
        millrace_answer(MILLRACE_ENDED, (uint32_t)code, bits, NULL, 0);
    }
}

#define MILLRACE_MAIN \
    int main(void) { millrace_serve(); }

#endif
