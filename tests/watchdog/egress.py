"""egress.py WHAT …: the parts of egress.sh, each in a network namespace of its own. Times are CLOCK_BOOTTIME, in seconds.

There is no compiler here: the BPF program is nine instructions, and goes to the kernel through bpf(2).
"""
import ctypes
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype, LIBC.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
# What is seen at the peer, by the port that it comes from. `ping` has none.
KINDS = {5001: "process", 6001: "reply", 6003: "retransmit", 6002: "kernel", 5002: "pod", 5003: "macvlan", 5004: "other", 5005: "bypass", 5006: "xdp"}
NODE, PEER = "10.9.0.1", "10.9.0.2"


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def bpf(command, attributes):
    buffer = ctypes.create_string_buffer(attributes.ljust(144, b"\0"))
    result = LIBC.syscall({"x86_64": 321, "aarch64": 280}[os.uname().machine], command, buffer, 144)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"bpf({command}): {os.strerror(ctypes.get_errno())}")
    return result


def program(kind, *instructions):
    code = ctypes.create_string_buffer(b"".join(struct.pack("<BBhi", op, src << 4 | dst, off, imm) for op, dst, src, off, imm in instructions))
    license, log = ctypes.create_string_buffer(b"GPL"), ctypes.create_string_buffer(65536)
    return bpf(5, struct.pack("<IIQQIIQ", kind, len(instructions), *map(ctypes.addressof, (code, license)), 1, 65536, ctypes.addressof(log)))


def pin(fd, path):
    name = ctypes.create_string_buffer(path.encode())
    bpf(6, struct.pack("<QI", ctypes.addressof(name), fd))


def raised(map_fd, nanoseconds):
    """The deadline is one word, and it is absolute: written late it opens nothing."""
    key, value = ctypes.create_string_buffer(4), ctypes.create_string_buffer(struct.pack("<Q", nanoseconds))
    bpf(2, struct.pack("<IIQQQ", map_fd, 0, ctypes.addressof(key), ctypes.addressof(value), 0))


def gate(device, folder):
    """Drops what leaves DEVICE at or after the deadline. Pinned, because a link ends with the last process that has it."""
    deadline = bpf(0, struct.pack("<IIII", 2, 4, 8, 1))
    loaded = program(
        3,  # SCHED_CLS
        (0x85, 0, 0, 0, 125),  # r0 = ktime_get_boot_ns()
        (0x18, 1, 2, 0, deadline), (0, 0, 0, 0, 0),  # r1 = the map's value
        (0x79, 1, 1, 0, 0),
        (0x2D, 1, 0, 2, 0),  # if r1 > r0 skip two
        (0xB7, 0, 0, 0, 2), (0x95, 0, 0, 0, 0),  # TCX_DROP
        (0xB7, 0, 0, 0, -1), (0x95, 0, 0, 0, 0),  # TCX_NEXT
    )
    pin(bpf(28, struct.pack("<IIII", loaded, socket.if_nametoindex(device), 47, 0)), f"{folder}/link")
    pin(deadline, f"{folder}/deadline")


def feed(how, device, folder, length, interval, late):
    """One grant each INTERVAL, printed with the time before it was asked for. LATE: stopped between the third and its write."""
    length, interval = float(length), float(interval)
    element, timed = f"element netdev gate open {{ {device}", f"timeout {int(length)}s }}"
    if how == "bpf":
        name = ctypes.create_string_buffer(f"{folder}/deadline".encode())
        deadline = bpf(7, struct.pack("<QI", ctypes.addressof(name), 0))
    for round in range(1000):
        sent = now()
        if late == "late" and round == 3:
            os.kill(os.getpid(), signal.SIGSTOP)
        done = True
        if how == "bpf":
            raised(deadline, int((sent + length) * 1e9))
        elif how != "none":
            table = element.replace("netdev", "inet") if how == "inet" else element
            # What expired cannot be deleted: with the latch, a transaction that comes too late is refused.
            first = "" if how == "latch" and round else f"add {table} }}\n"
            done = subprocess.run(["nft", "-f", "-"], input=f"{first}delete {table} }}\nadd {table} {timed}", text=True, stderr=subprocess.DEVNULL).returncode == 0
        print(f"{round} {sent} {now()} {'written' if done else 'refused'}", flush=True)
        if late == "late" and round == 3:
            return
        time.sleep(interval)


def ring(device):
    """An AF_XDP socket, as a data plane in user space has: its frames go to the driver and pass no hook."""
    fd, ask, length = LIBC.socket(44, socket.SOCK_RAW, 0), ctypes.create_string_buffer(128), ctypes.c_uint(128)
    memory = LIBC.mmap(None, 4096, 3, 0x8022, -1, 0)
    for option, value in (4, struct.pack("<QQIIII", memory, 4096, 4096, 0, 0, 0)), (5, b"\1\0\0\0"), (6, b"\1\0\0\0"), (3, b"\1\0\0\0"):
        LIBC.setsockopt(fd, 283, option, value, len(value))
    LIBC.getsockopt(fd, 283, 1, ask, ctypes.byref(length))
    offsets = struct.unpack("<16Q", ask.raw)
    queue, done = (LIBC.mmap(None, 4096, 3, 1, fd, at) for at in (0x80000000, 0x180000000))
    if LIBC.bind(fd, struct.pack("<HHIII", 44, 2, socket.if_nametoindex(device), 0, 0), 16) < 0:
        raise OSError(ctypes.get_errno(), "AF_XDP")

    def out(frame):
        ctypes.memmove(memory, frame, len(frame))
        ctypes.memmove(queue + offsets[6], struct.pack("<QII", 0, len(frame), 0), 16)
        ctypes.c_uint32.from_address(queue + offsets[4]).value += 1
        LIBC.sendto(fd, None, 0, 0x40, None, 0)
        # What was sent is given back.
        produced, consumed = (ctypes.c_uint32.from_address(done + offsets[at]) for at in (12, 13))
        consumed.value = produced.value

    return out


def send(port, address, past="", device=""):
    """A packet each 10 ms: of a process, or past the queues of the kernel: `bypass` is PACKET_QDISC_BYPASS, and `xdp` AF_XDP."""
    port = int(port)
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 36, 0, 0, 9, 17, 0, *map(socket.inet_aton, (NODE, address)))
    ip = ip[:10] + struct.pack("!H", ~(sum(struct.unpack("!10H", ip)) % 65535) & 65535) + ip[12:]
    frame = bytes.fromhex("ffffffffffff 020000000001 0800") + ip + struct.pack("!HHHH", port, 9, 16, 0) + bytes(8)
    if past == "xdp":
        out = ring(device)
    elif past:
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        raw.setsockopt(263, 20, 1)
        raw.bind((device, 0x800))
        out = raw.send
    else:
        own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        own.bind(("", port))
        own.connect((address, 9))
        out, frame = own.send, bytes(8)
    while True:
        try:
            out(frame)
        except OSError:
            pass  # A full queue.
        time.sleep(0.01)


def serve():
    """In the node: a process answers 6001. What comes on 6002 a worker of the kernel sends back (sockmap): no process is behind it."""
    listeners = [socket.create_server((NODE, port)) for port in (6001, 6002)]
    reply, kernel = (listener.accept()[0] for listener in listeners)
    sockets = bpf(0, struct.pack("<IIII", 15, 4, 4, 1))
    redirect = program(
        14,  # SK_SKB
        (0x18, 2, 1, 0, sockets), (0, 0, 0, 0, 0),
        (0xB7, 3, 0, 0, 0), (0xB7, 4, 0, 0, 0),
        (0x85, 0, 0, 0, 52),  # sk_redirect_map
        (0x95, 0, 0, 0, 0),
    )
    bpf(8, struct.pack("<IIII", sockets, redirect, 38, 0))
    key, value = ctypes.create_string_buffer(4), ctypes.create_string_buffer(struct.pack("<I", kernel.fileno()))
    bpf(2, struct.pack("<IIQQQ", sockets, 0, ctypes.addressof(key), ctypes.addressof(value), 0))
    # Nobody acknowledges this: the kernel sends it again each second (TCP_RTO_MAX_MS).
    lost = socket.create_connection((PEER, 6003), source_address=(NODE, 6003))
    lost.setsockopt(6, 44, 1000)
    reply.setsockopt(6, 1, 1)
    print("connected", flush=True)
    time.sleep(1)
    lost.send(b"x")
    while True:
        try:
            reply.send(reply.recv(4096))
        except OSError:
            time.sleep(1)


def talk():
    """In the peer: asks both ports, and pings."""
    listener = socket.create_server((PEER, 6003))
    asks = [socket.create_connection((NODE, port)) for port in (6001, 6002)]
    lost = listener.accept()[0]
    ping = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    for ask in asks:
        ask.setsockopt(6, 1, 1)
        ask.setblocking(False)
    while lost:
        ping.sendto(struct.pack("!BBHHH", 8, 0, 0xF7FF, 0, 0), (NODE, 0))
        for ask in asks:
            try:
                ask.send(b"x")
                ask.recv(65536)
            except OSError:
                pass  # Nothing to read, or the node is silent for long.
        time.sleep(0.01)


def see():
    """In the peer: when each kind was seen last, by the time at which the kernel received it. Told when it is terminated."""
    offset = time.time() - now()
    seen, ended = {}, []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x800))
    tap.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)  # RCVBUFFORCE
    tap.setsockopt(socket.SOL_SOCKET, 35, 1)  # TIMESTAMPNS
    while not ended:
        if not select.select([tap], [], [], 0.2)[0]:
            continue
        packet, more, _, source = tap.recvmsg(100, 64)
        seconds, nanoseconds = struct.unpack("<qq", more[0][2][:16])
        port, head = struct.unpack("!H", packet[20:22])[0], packet[20]
        kind = ("ping" if head == 0 else None) if packet[9] == 1 else KINDS.get(port)
        if source[2] != 4 and kind:
            seen[kind] = seconds + nanoseconds / 1e9 - offset
    for kind, at in seen.items():
        print(kind, at)


def row(name, fault, feeder, seen, end, length):
    """Milliseconds from the deadline of the last grant to the last packet. `on`: it goes on."""
    rounds = [line.split() for line in open(feeder)]
    deadline = float(rounds[-1][1]) + float(length)
    at = {kind: float(last) for kind, last in (line.split() for line in open(seen))}
    cells = [("never" if kind not in at else "on" if float(end) - at[kind] < (1.5 if kind == "retransmit" else 0.3) else str(round((at[kind] - deadline) * 1000)))
             for kind in ("process", "reply", "ping", "retransmit", "kernel", "pod", "macvlan", "other", "bypass", "xdp")]
    print("|", " | ".join([name, fault, rounds[-1][3], *cells]), "|", flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
