/*
 * gatekeeper: asks its host companion about every UDP port that packets go to, and lets packets to those pass that it allows.
 *
 * The first packet to a port goes up to the host companion, and is dropped like all others until the answer is there (reason 1).
 * Packets to ports that are denied are dropped (reason 2). What was answered stands in the map `ports`.
 *
 * Build it and its host companion, and put both files into one folder:
 *   millrace plugin build gatekeeper-c && millrace plugin build gatekeeper-slow-c
 */
#include "millrace.h"

MILLRACE_PLUGIN("{\"abi\":1,\"name\":\"gatekeeper\",\"version\":\"0.1.0\","
                "\"summary\":\"Lets UDP packets to those ports pass that its host companion allows.\",\"positions\":[\"early\",\"late\"],"
                "\"capabilities\":[\"packet-read\",\"map-read\",\"map-write\",\"message\"],"
                "\"maps\":[{\"name\":\"ports\",\"key\":2,\"value\":1,\"entries\":1024}],"
                "\"host-companion\":\"gatekeeper-slow.wasm\"}");

enum { ASKED = 0, ALLOWED = 1, DENIED = 2 };
enum { PORTS = 0 };

int32_t millrace_init(const uint8_t *settings, size_t bytes) {
    (void)settings, (void)bytes;
    return 0;
}

void millrace_packets(struct millrace_call *call) {
    for (uint32_t index = 0; index < call->count; index++) {
        struct millrace_packet *packet = millrace_packet(call, index);
        uint16_t port = packet->destination_port;
        uint8_t answer = ASKED;
        if (millrace_map_get(PORTS, &port, sizeof port, &answer, sizeof answer) == MILLRACE_ABSENT && millrace_punt(packet))
            millrace_map_set(PORTS, &port, sizeof port, &answer, sizeof answer);
        if (answer != ALLOWED)
            millrace_drop(packet, answer == DENIED ? 2 : 1);
    }
}

/* An answer: the port, and what is said of it. */
void millrace_message(const uint8_t *bytes, size_t length) {
    if (length == 3)
        millrace_map_set(PORTS, bytes, 2, bytes + 2, 1);
}
