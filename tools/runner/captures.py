"""Captures (pcap and pcapng) as inputs of fuzz targets: the bytes before a frame are the decisions that select it."""

import hashlib
import struct

# Maximum length of an input's frame, in bytes.
LONGEST = 2047
# Number of frames in one input of the router.
TOGETHER = 6
ETHERNET = 1


def read(path):
    """Returns the Ethernet frames of a capture."""
    with open(path, "rb") as file:
        content = file.read()
    if content[:4] in (b"\x0a\x0d\x0d\x0a",):
        frames = list(_pcapng(content))
    elif content[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1", b"\xa1\xb2\xc3\xd4", b"\xa1\xb2\x3c\x4d"):
        frames = list(_pcap(content))
    else:
        raise ValueError(f"{path}: no capture; pcap and pcapng are read")
    if not frames:
        raise ValueError(f"{path}: no Ethernet frame")
    return frames


def _pcap(content):
    order = "<" if content[0] in (0xD4, 0x4D) else ">"
    if struct.unpack_from(order + "I", content, 20)[0] & 0xFFFF != ETHERNET:
        return
    at = 24
    while at + 16 <= len(content):
        length = struct.unpack_from(order + "I", content, at + 8)[0]
        yield content[at + 16 : at + 16 + length]
        at += 16 + length


def _pcapng(content):
    at, order, links = 0, "<", []
    while at + 12 <= len(content):
        kind = struct.unpack_from(order + "I", content, at)[0]
        if kind == 0x0A0D0D0A:
            order = "<" if content[at + 8] == 0x4D else ">"
            links = []
        length = struct.unpack_from(order + "I", content, at + 4)[0]
        if length < 12:
            return
        if kind == 1:
            links.append(struct.unpack_from(order + "H", content, at + 8)[0])
        elif kind == 6:
            interface = struct.unpack_from(order + "I", content, at + 8)[0]
            captured = struct.unpack_from(order + "I", content, at + 20)[0]
            if links[interface : interface + 1] == [ETHERNET]:
                yield content[at + 28 : at + 28 + captured]
        at += length


def _captured(frame, moves, source, destination):
    """Returns a whole frame in the form that fuzz/src/router/frames.rs reads, with its checksums repaired there."""
    frame = frame[:LONGEST]
    return bytes([0x37]) + struct.pack(">H", len(frame)) + bytes([moves, source, destination]) + frame


def _decoders(frames):
    """Yields an input for each decoder of a frame's layers: the number of the decoder, and the layer."""
    for frame in frames:
        yield bytes([2]) + frame
        at, ether_type = 14, frame[12:14]
        while ether_type in (b"\x81\x00", b"\x88\xa8"):
            yield bytes([10]) + frame[14:]
            at, ether_type = at + 4, frame[at + 2 : at + 4]
        packet = frame[at:]
        if ether_type == b"\x08\x06":
            yield bytes([0]) + packet
        elif ether_type == b"\x08\x00" and len(packet) >= 20:
            yield bytes([4]) + packet
            yield from _transport(packet[9], packet[(packet[0] & 15) * 4 :])
        elif ether_type == b"\x86\xdd" and len(packet) >= 40:
            yield bytes([5]) + packet
            yield bytes([6]) + packet
            yield from _transport(packet[6], packet[40:])


def _transport(protocol, content):
    for number in {58: [3, 8], 6: [9]}.get(protocol, []):
        yield bytes([number]) + content


def _offload(frames):
    """Yields each frame twice: unchanged, and addressed to the port."""
    for frame in frames:
        yield b"\x00" + frame
        yield b"\x01" + _captured(frame, 1, 0, 0)


def _router(frames):
    """Yields inputs of the standard router, with frames in order from the host behind port a to others."""
    for start in range(0, len(frames), TOGETHER):
        content = bytes([0, 0, 0])
        for number, frame in enumerate(frames[start : start + TOGETHER]):
            content += bytes([0, number % 8]) + _captured(frame, 7 if number % 3 else 1, 0, number % 10)
        yield content


def _plugin_verdicts(frames):
    """Yields inputs of a plugin with all capabilities at the gate firewall: frames with a resize, a write and a verdict."""
    for start in range(0, len(frames), TOGETHER):
        content = bytes([0, 0, 0, 2, 0])
        for number, frame in enumerate(frames[start : start + TOGETHER]):
            content += b"\x00" + _captured(frame, 7, 0, number % 10)
            content += bytes([12, 0, 0, 20, 0, 2, 14, 4, 1, 2, 3, 4, 0, 1])
        yield content


# Functions that make each target's inputs of frames.
TARGETS = {"decoders": _decoders, "offload": _offload, "plugin_verdicts": _plugin_verdicts, "router": _router}


def inputs(target, frames):
    """Returns the inputs of a target, by their names."""
    return {hashlib.sha1(content).hexdigest(): content for content in TARGETS[target](frames)}
