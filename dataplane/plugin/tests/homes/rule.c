/*
 * The rule that plugins of all runtimes have to follow alike; `rule.rs` is the same in Rust, as part of the router.
 */
#include "millrace.h"

MILLRACE_PLUGIN("{\"abi\":1,\"name\":\"rule\",\"version\":\"0.1.0\",\"summary\":\"Does a little of everything.\","
                "\"positions\":[\"early\"],"
                "\"features\":[\"flow-ends\",\"to-ports\",\"to-instances\",\"classify\",\"hold\",\"reject\"],"
                "\"capabilities\":[\"log\",\"packet-read\",\"packet-write\",\"packet-resize\",\"packet-make\",\"timer\",\"flow-backlog\",\"map-read\",\"map-write\",\"message\"],"
                "\"messages\":{\"read\":\"the counters\",\"set\":\"port=PORT: packets to it are dropped\"},"
                "\"settings\":{\"type\":\"object\",\"properties\":{\"port\":{\"type\":\"integer\"}}},"
                "\"window\":64,\"flow-state\":8,\"service-state\":20,\"maps\":[{\"name\":\"ports\",\"key\":2,\"value\":12,\"entries\":6}],\"counters\":[\"packets\",\"ports\"],\"state-version\":2,\"period\":500}");

/* An instance. */
static struct {
    uint64_t port, packets, firsts, beyond, ended, kept, ticks, waited, noted;
} own;

static int32_t set(const void *json, size_t bytes) {
    struct millrace_json port = millrace_json_get(json, bytes, "\"port\"");
    if (port.start && !millrace_json_number(port, 65535, &own.port))
        return millrace_fail("port: give 0 to 65535");
    return 0;
}

/* Counts packets of a port in the map, takes every fifth count out again, and says what came of it, also of what it may not do. */
static uint64_t note(uint16_t port) {
    struct {
        uint32_t count, length, calls;
    } seen = {0, 0, 0};
    uint64_t came = 1 + (uint64_t)millrace_map_get(0, &port, sizeof port, &seen, sizeof seen);
    seen.count++;
    seen.calls += port;
    came = came * 4 + (uint64_t)millrace_map_set(0, &port, sizeof port, &seen, sizeof seen);
    if (seen.count % 5 == 0)
        came = came * 4 + (uint64_t)millrace_map_remove(0, &port, sizeof port);
    came = came * 4 + (uint64_t)millrace_map_set(0, &port, 1, &seen, sizeof seen);
    came = came * 4 + (uint64_t)millrace_map_set(1, &port, sizeof port, &seen, sizeof seen);
    came = came * 4 + (uint64_t)millrace_map_get(1, &port, sizeof port, &seen, sizeof seen);
    return came + seen.count;
}

int32_t millrace_init(const uint8_t *settings, size_t bytes) {
    /* There are no maps yet. */
    own.noted = note(1);
    ++((uint32_t *)millrace_service())[4];
    return set(settings, bytes);
}

/* A sum in which each part of what is told has a share of its own. */
static uint64_t waiting_before(const struct millrace_packet *packet) {
    struct millrace_waiting waiting;
    if (!millrace_backlog(packet, &waiting))
        return 1000000;
    return waiting.of + 3 * waiting.port + 5 * waiting.queue + 7 * waiting.packets + 11 * waiting.bytes
           + 13 * waiting.instance_packets + 17 * waiting.instance_bytes + 19 * waiting.paid
           + 23 * waiting.payer_packets + 29 * waiting.payer_bytes
           + (waiting.allowance == MILLRACE_NO_ALLOWANCE ? 31 : 37 * waiting.allowance);
}

static void decide(struct millrace_packet *packet, uint64_t now) {
    uint8_t *window = millrace_at(packet->window);
    if (packet->window_length > 0)
        window[0]++;
    packet->tag = (uint8_t)(own.packets % 32);
    switch (packet->destination_port) {
    case 7:
        if (millrace_resize(packet, 4)) {
            /* The window has moved with the packet's beginning. */
            window = millrace_at(packet->window);
            window[3] = (uint8_t)packet->window_length;
            millrace_write(packet, 0, "\1\2\3", 3);
        }
        break;
    case 8:
        millrace_resize(packet, -2);
        break;
    case 9:
        millrace_make(window, packet->window_length, 2);
        break;
    case 10:
        packet->verdict = MILLRACE_TO_PORT;
        packet->target = 5;
        break;
    case 11:
        packet->verdict = MILLRACE_HOLD;
        packet->until = now + 1000;
        break;
    case 12:
        packet->verdict = MILLRACE_TO_PORTS;
        packet->until = 6;
        break;
    case 13:
        packet->verdict = MILLRACE_TO_INSTANCE;
        packet->target = 1;
        break;
    case 14:
        packet->verdict = MILLRACE_CLASSIFY;
        break;
    case 16:
        millrace_reject(packet, 9);
        break;
    case 15:
        own.waited += waiting_before(packet);
        break;
    }
}

void millrace_packets(struct millrace_call *call) {
    uint64_t *common = millrace_service();
    common[0] += call->count;
    for (uint32_t index = 0; index < call->count; index++) {
        struct millrace_packet *packet = millrace_packet(call, index);
        uint64_t *of_flow = millrace_at(packet->state);
        uint8_t byte;
        own.packets++;
        millrace_count(0, 1);
        millrace_count(1, packet->destination_port);
        millrace_count(2, 1); /* There is no such counter. */
        own.noted += note(packet->destination_port);
        own.firsts += (packet->flags & MILLRACE_FIRST) != 0;
        if (packet->flags & MILLRACE_COPY)
            own.firsts += 1000;
        if (of_flow)
            ++*of_flow;
        if (millrace_read(packet, 200, &byte, 1) == 1)
            own.beyond += byte;
        if (packet->destination_port == own.port)
            millrace_drop(packet, 3);
        else if (packet->destination_port == 666)
            packet->verdict = 255;
        else if (packet->destination_port == 667)
            packet->tag = 40;
        else if (of_flow && *of_flow % 4 == 0)
            packet->verdict = MILLRACE_CONSUME;
        else
            decide(packet, call->now);
    }
}

static void add(struct millrace_text *text, const char *name, uint64_t value) {
    millrace_add(text, text->length > 1 ? ",\"" : "\"");
    millrace_add(text, name);
    millrace_add(text, "\":");
    millrace_add_number(text, value);
}

int32_t millrace_control(const char *name, size_t name_bytes, const uint8_t *arguments, size_t bytes) {
    char memory[512];
    struct millrace_text text = {memory, sizeof memory, 0, false};
    if (name_bytes == 3 && memcmp(name, "set", 3) == 0) {
        millrace_log(MILLRACE_WARNING, "the port changes");
        millrace_timer(1000);
        return set(arguments, bytes);
    }
    millrace_add(&text, "{");
    add(&text, "port", own.port);
    add(&text, "packets", own.packets);
    add(&text, "firsts", own.firsts);
    add(&text, "beyond", own.beyond);
    add(&text, "ended", own.ended);
    add(&text, "kept", own.kept);
    add(&text, "ticks", own.ticks);
    add(&text, "waited", own.waited);
    add(&text, "noted", own.noted);
    add(&text, "common", ((const uint64_t *)millrace_service())[0]);
    add(&text, "begun", ((const uint32_t *)millrace_service())[4]);
    millrace_add(&text, "}");
    return millrace_reply_text(&text);
}

void millrace_message(const uint8_t *bytes, size_t length) {
    own.ticks += length;
    if (!millrace_send(bytes, length / 2))
        own.ticks += 1000000;
}

void millrace_periodic(uint64_t now) { own.ticks += now; }

void millrace_flow_ended(const struct millrace_flow_end *flow) {
    const uint64_t *of_flow = millrace_at(flow->state);
    own.ended += flow->packets + flow->destination_port;
    if (of_flow)
        own.kept += *of_flow;
}

int32_t millrace_save(void) { return millrace_reply(&own, sizeof own); }

int32_t millrace_restore(const uint8_t *state, size_t bytes, uint32_t version) {
    if (version != 2 || bytes != sizeof own)
        return millrace_fail("this is no state of version 2");
    memcpy(&own, state, bytes);
    return 0;
}
