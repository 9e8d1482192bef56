"""slow.py NAME MILLISECONDS: what passes between NAME (a bridge with a machine's cable) and the switch takes this long each way,
and up to a tenth more by chance, in the order in which it came.

Kernels need a module to delay packets, and not all have it. Here the way has a gap of two TAP devices, and this
carries frames across. They are whole frames: a TAP device that offers nothing is given no unfinished checksums and no giants.
When this process ends, the devices are gone."""

import collections
import fcntl
import os
import random
import select
import struct
import subprocess
import sys
import time

TUNSETIFF = 0x400454CA
TAP_WITHOUT_HEADER = 0x0002 | 0x1000
LARGEST = 1 << 16


def tap(name, bridge):
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", name.encode(), TAP_WITHOUT_HEADER))
    subprocess.run(["ip", "link", "set", name, "master", bridge, "up"], check=True)
    return device


name, delay = sys.argv[1], int(sys.argv[2]) / 1000
near, far = tap(f"{name}-near", name), tap(f"{name}-far", "switch")
# Of each side: what came from it and when it is to arrive at the other.
ways = {near: (collections.deque(), far), far: (collections.deque(), near)}
print("carries", flush=True)
while True:
    now = time.monotonic()
    due = [frames[0][0] for frames, _ in ways.values() if frames]
    readable, _, _ = select.select([near, far], [], [], max(0, min(due) - now) if due else None)
    now = time.monotonic()
    for side in readable:
        frames, _ = ways[side]
        arrives = now + delay * (1 + random.random() / 10)
        # One that was quicker than the one before it does not overtake it.
        frames.append((max(arrives, frames[-1][0]) if frames else arrives, os.read(side, LARGEST)))
    for frames, other in ways.values():
        while frames and frames[0][0] <= now:
            try:
                os.write(other, frames.popleft()[1])
            except OSError:
                pass  # a device that is down takes nothing, as a cable that is pulled
