/*
 * gatekeeper: asks its host companion about the destination port of UDP packets, and passes packets to the
 * ports that the host companion allows.
 *
 * The first packet to a port goes up to the host companion. All packets to the port are dropped until the
 * answer arrives (reason 1), and later if the port is denied (reason 2). The map `ports` holds the answers.
 *
 * Build it and its host companion, and put both files into one folder:
 *   millrace plugin build gatekeeper-c && millrace plugin build gatekeeper-slow-c
 */
#include "millrace.h"

MILLRACE_PLUGIN("{\"abi\":1,\"name\":\"gatekeeper\",\"version\":\"0.1.0\","
                "\"summary\":\"Passes UDP packets to the ports that its host companion allows.\",\"positions\":[\"early\",\"late\"],"
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

/* Receives an answer: the port, and ALLOWED or DENIED. */
void millrace_message(const uint8_t *bytes, size_t length) {
    if (length == 3)
        millrace_map_set(PORTS, bytes, 2, bytes + 2, 1);
}
