"""Tests of captures as inputs of fuzz targets. Run `python3 -B -m unittest` in tools."""

import os
import struct
import tempfile
import unittest

from runner import captures

UDP = bytes.fromhex("02000000000a0200000000a20800") + bytes.fromhex("450000200001000040110000") + bytes(8) + bytes(12)
TAGGED = UDP[:12] + b"\x81\x00\x00\x0a" + UDP[12:]


def pcap(frames, order="<", link=1):
    content = struct.pack(order + "IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, link)
    return content + b"".join(struct.pack(order + "IIII", 0, 0, len(frame), len(frame)) + frame for frame in frames)


def pcapng(frames):
    def block(kind, body):
        body += bytes(-len(body) % 4)
        return struct.pack("<II", kind, len(body) + 12) + body + struct.pack("<I", len(body) + 12)

    content = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)) + block(1, struct.pack("<HHI", 1, 0, 0))
    for frame in frames:
        content += block(6, struct.pack("<IIIII", 0, 0, 0, len(frame), len(frame)) + frame)
    return content


class Captures(unittest.TestCase):
    def read(self, content):
        with tempfile.NamedTemporaryFile(delete=False) as file:
            file.write(content)
        self.addCleanup(os.unlink, file.name)
        return captures.read(file.name)

    def test_frames_of_both_formats_are_read(self):
        for content in (pcap([UDP, TAGGED]), pcap([UDP, TAGGED], order=">"), pcapng([UDP, TAGGED])):
            self.assertEqual(self.read(content), [UDP, TAGGED])

    def test_a_file_without_ethernet_frames_is_refused(self):
        for content in (b"no capture", pcap([]), pcap([UDP], link=101)):
            with self.assertRaises(ValueError):
                self.read(content)

    def test_each_layer_goes_to_its_decoder(self):
        made = captures.inputs("decoders", [TAGGED]).values()
        self.assertEqual(sorted(content[0] for content in made), [2, 4, 10])

    def test_each_target_keeps_the_frame_whole(self):
        for target in ("offload", "router", "plugin_verdicts"):
            made = captures.inputs(target, [UDP])
            self.assertTrue(made and all(UDP in content for content in made.values()), target)
