/*
 * ack-monitor-c: watches the acknowledgments of TCP flows, and counts duplicates.
 *
 * An example of state for each flow, which the router keeps and removes with the flow. The plugin reads
 * headers in the packet's window, and the router tells it when a flow ends. Packets always pass.
 *
 *   millrace plugin load ack-monitor-c.wasm
 *   millrace instance create ack-monitor-c acks
 *   millrace bind acks --gate monitor --filter 'proto tcp'
 *   millrace control acks read --json
 *   {"acks":5210,"duplicates":12,"fast":2,"flows":3,"ended":1,"most_duplicates":9}
 */
#include "millrace.h"

MILLRACE_PLUGIN("{\"abi\":1,\"name\":\"ack-monitor-c\",\"version\":\"0.1.0\","
                "\"summary\":\"Counts the acknowledgments of TCP flows, and their duplicates.\","
                "\"positions\":[\"early\",\"late\",\"copy\"],"
                "\"messages\":{\"read\":\"the counters\",\"reset\":\"sets all counters to zero\"},"
                "\"flow-state\":16}");

/* Number of consecutive duplicates after which the other end retransmits a segment (RFC 5681, 3.2). */
#define FAST 3

/* State of a flow; zero at first. */
struct flow {
    uint32_t highest; /* acknowledgment number */
    uint32_t acks;
    uint32_t duplicates;
    uint16_t window; /* of the last acknowledgment */
    uint16_t run;    /* duplicates since the highest number went up */
};
_Static_assert(sizeof(struct flow) == 16, "as in the manifest");

/* Relevant fields of a segment. */
struct ack {
    uint32_t number;
    uint16_t window;
    bool bare; /* neither data nor SYN nor FIN */
};

enum { FIN = 1, SYN = 2, RST = 4, ACK = 16 };

/* Counters of an instance. */
static struct {
    uint64_t acks, duplicates, fast, flows, ended, most_duplicates;
} counters;

static uint32_t number_at(const uint8_t *bytes, size_t count) {
    uint32_t number = 0;
    for (size_t index = 0; index < count; index++)
        number = number << 8 | bytes[index];
    return number;
}

/* Reads the acknowledgment in a packet. Returns whether there is a readable one. */
static bool read_ack(const struct millrace_packet *packet, struct ack *ack) {
    const uint8_t *window = millrace_at(packet->window);
    size_t network = packet->network, transport = packet->transport;
    if (packet->protocol != 6 || packet->exceptions & (MILLRACE_FRAGMENT | MILLRACE_CUT) ||
        transport == MILLRACE_NO_OFFSET || transport < network + 20 || transport + 20 > packet->window_length)
        return false;
    const uint8_t *ip = window + network, *tcp = window + transport;
    uint8_t flags = tcp[13];
    if (!(flags & ACK) || flags & RST)
        return false;
    /* Link padding is no data: the IP header gives the length of the packet. */
    size_t length = packet->family == 4 ? number_at(ip + 2, 2) : 40 + number_at(ip + 4, 2);
    size_t headers = transport - network + (size_t)(tcp[12] >> 4) * 4;
    ack->number = number_at(tcp + 8, 4);
    ack->window = (uint16_t)number_at(tcp + 14, 2);
    ack->bare = length <= headers && !(flags & (SYN | FIN));
    return true;
}

/* Updates the state of a flow with an acknowledgment. */
static void follow(struct flow *flow, const struct ack *ack) {
    /* Numbers wrap: a number less than half the range behind is older. */
    int32_t ahead = (int32_t)(ack->number - flow->highest);
    if (flow->acks == 0) {
        counters.flows++;
        flow->highest = ack->number;
    } else if (ahead > 0) {
        flow->highest = ack->number;
        flow->run = 0;
    } else if (ahead == 0 && ack->bare && ack->window == flow->window) {
        counters.duplicates++;
        flow->duplicates++;
        if (flow->run < UINT16_MAX && ++flow->run == FAST)
            counters.fast++;
    }
    flow->acks += flow->acks < UINT32_MAX;
    flow->window = ack->window;
}

int32_t millrace_init(const uint8_t *settings, size_t bytes) {
    struct millrace_json key, value;
    size_t at = 0;
    return millrace_json_next(settings, bytes, &at, &key, &value) ? millrace_fail("no setting is taken here") : 0;
}

void millrace_packets(struct millrace_call *call) {
    for (uint32_t index = 0; index < call->count; index++) {
        struct millrace_packet *packet = millrace_packet(call, index);
        struct ack ack;
        if (!read_ack(packet, &ack))
            continue;
        counters.acks++;
        /* Without memory for its state, a flow is not followed. */
        struct flow *flow = millrace_at(packet->state);
        if (flow)
            follow(flow, &ack);
    }
}

void millrace_flow_ended(const struct millrace_flow_end *end) {
    const struct flow *flow = millrace_at(end->state);
    if (!flow || flow->acks == 0)
        return;
    counters.ended++;
    if (flow->duplicates > counters.most_duplicates)
        counters.most_duplicates = flow->duplicates;
}

static int32_t read(void) {
    const struct {
        const char *name;
        uint64_t value;
    } all[] = {
        {"{\"acks\":", counters.acks},       {",\"duplicates\":", counters.duplicates},
        {",\"fast\":", counters.fast},       {",\"flows\":", counters.flows},
        {",\"ended\":", counters.ended},     {",\"most_duplicates\":", counters.most_duplicates},
    };
    char memory[256];
    struct millrace_text text = {memory, sizeof memory, 0, false};
    for (size_t index = 0; index < sizeof all / sizeof *all; index++) {
        millrace_add(&text, all[index].name);
        millrace_add_number(&text, all[index].value);
    }
    millrace_add(&text, "}");
    return millrace_reply_text(&text);
}

int32_t millrace_control(const char *name, size_t name_bytes, const uint8_t *arguments, size_t bytes) {
    struct millrace_json message = {name, name_bytes}, key, value;
    size_t at = 0;
    if (millrace_json_next(arguments, bytes, &at, &key, &value))
        return millrace_fail("no argument is taken here");
    if (millrace_json_is(message, "reset"))
        memset(&counters, 0, sizeof counters);
    else if (!millrace_json_is(message, "read"))
        return millrace_fail("unknown message; give read or reset");
    return read();
}
