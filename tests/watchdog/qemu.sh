#!/usr/bin/env bash
# A real driver resets a real kernel: the figures of docs/watchdog-lease.md, printed as its tables. Then what `pod-safety-agent check` says of
# each device, its drill, and `pod-safety-agent run` beside a pod, a kubelet and an API server with one Lease; and the agent's unit tests on
# cgroups of version 2. QEMU, the kernel, busybox and cpio come from Debian's packages, and are unpacked, not installed. Writes
# tests/records/watchdog.toml.
#
#   tests/watchdog/qemu.sh [FOLDER]     works in target/watchdog, or there
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source tests/packages.sh

BEGIN=$SECONDS
WORK=${1:-target/watchdog}
# The pod of the agent itself.
OWN=0aaaaaaa-1b7e-4d51-9c6e-6d1f2a3b4c5d
rm -rf "$WORK"/log-*
mkdir -p "$WORK"
WORK=$(cd "$WORK" && pwd)

unpacked() { # folder, what must be in it, packages…
    compgen -G "$WORK/$1/$2" >/dev/null || unpack_packages "$WORK/$1" "${@:3}"
}
update_packages
unpacked root 'boot/vmlinuz-*' "$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image/ { print $2; exit }')"
unpacked busybox 'bin/busybox' busybox-static
command -v cpio >/dev/null || unpacked cpio 'bin/cpio' cpio
PATH=$PATH:$WORK/cpio/bin
kernel=$(compgen -G "$WORK/root/boot/vmlinuz-*" | head -1)
drivers=$WORK/root/lib/modules/${kernel##*/vmlinuz-}/kernel/drivers

QEMU=(qemu-system-x86_64)
if ! command -v qemu-system-x86_64 >/dev/null; then
    # With what it is linked to and reads, as the tests with a hypervisor have it.
    usr=$(tests/control-plane/tools/hypervisor.sh unpacked)/usr
    QEMU=(env LD_LIBRARY_PATH="$usr/lib/x86_64-linux-gnu:$usr/lib/x86_64-linux-gnu/pulseaudio" "$usr/bin/qemu-system-x86_64" -L "$usr/share/qemu" -L "$usr/share/seabios")
fi

# Static, as in the image: there is no C library in the machine.
export RUSTFLAGS="-C target-feature=+crt-static"
built=${CARGO_TARGET_DIR:-$PWD/target}/$(rustc --print host-tuple)
cargo build --quiet --locked --target host-tuple --profile agent -p pod-safety-agent
AGENT=$built/agent/pod-safety-agent
TESTS=$(cargo test --quiet --locked --target host-tuple -p pod-safety-agent --lib --no-run --message-format json |
    python3 -c 'import json, sys; print(*(one["executable"] for one in map(json.loads, sys.stdin) if one.get("executable")))')
unset RUSTFLAGS

# A program of the machine that puts itself into a cgroup.
in_cgroup() { # name, cgroup, what it does
    local folder=/sys/fs/cgroup/$2
    printf '#!/bin/busybox sh\nbusybox mkdir -p %s\necho $$ >%s/cgroup.procs\necho BEGINS\n%s\n' "$folder" "$folder" "$3" >"$WORK/initramfs/bin/$1"
    chmod 755 "$WORK/initramfs/bin/$1"
}

# What each run does after its watchdog was petted for the last time. W is 10 s.
initramfs() { # module
    local root=$WORK/initramfs
    rm -rf "$root"
    mkdir -p "$root"/{bin,dev,proc,sys,account}
    cp "$WORK/busybox/bin/busybox" "$root/bin/busybox"
    cp "$drivers/watchdog/watchdog.ko" "$drivers/watchdog/$1.ko" "$drivers/net/ethernet/intel/e1000/e1000.ko" "$root/"
    cp "$AGENT" "$root/bin/pod-safety-agent"
    cp "$WORK"/account/{token,ca.crt} "$root/account/"
    cp "$TESTS" "$root/bin/unit-tests"
    in_cgroup pod kubepods/pod3f0b9d2e-1b7e-4d51-9c6e-6d1f2a3b4c5d 'while :; do echo POD; busybox usleep 200000; done'
    in_cgroup kubelet system.slice/kubelet.service 'busybox sleep 1000'
    cat >"$root/init" <<SCRIPT
#!/bin/busybox sh
busybox mount -t proc none /proc
busybox mount -t sysfs none /sys
busybox mount -t devtmpfs none /dev
busybox insmod /watchdog.ko
busybox insmod /$1.ko nowayout=1
what=\$(busybox sed 's/.*what=\([a-z-]*\).*/\1/' /proc/cmdline)
port=\$(busybox sed 's/.*port=\([0-9]*\).*/\1/' /proc/cmdline)
if [ "\$what" = cgroups ]; then
    busybox mkdir -p /tmp
    busybox mount -t cgroup2 none /sys/fs/cgroup
    POD_SAFETY_REAL_CGROUPS=1 unit-tests real_cgroups real_watchdog --test-threads 1 2>&1
    busybox poweroff -f
fi
[ "\$what" != check ] || { pod-safety-agent check 2>&1; busybox poweroff -f; }
if [ "\$what" = drill ]; then
    pod-safety-agent drill --reset-this-machine 2>&1 &
    busybox usleep 300000
    echo LAST-PET
    busybox sleep 1000
fi
case \$what in
    agent-*)
        busybox insmod /e1000.ko
        busybox ip addr add 10.0.2.15/24 dev eth0
        busybox ip link set eth0 up
        busybox mount -t cgroup2 none /sys/fs/cgroup
        pod &
        # As systemd does: a kubelet that ends is started again.
        while :; do kubelet; done &
        busybox mkdir -p /sys/fs/cgroup/kubepods/pod$OWN
        pod-safety-agent run --pod-uid $OWN --node a --namespace safe --server 10.0.2.2 --port \$port --account /account 2>&1 &
        agent=\$!
        until [ -e /run/pod-safety-agent/promised ]; do busybox usleep 100000; done
        busybox sleep 7
        case \$what in
            agent-stopped) busybox kill -STOP \$agent; echo NOW ;;
            agent-killed) busybox kill -9 \$agent; echo NOW ;;
            agent-stopped-killed) busybox kill -STOP \$agent; echo NOW; busybox sleep 8; busybox kill -9 \$agent ;;
        esac
        # What the next boot would read of this one.
        while :; do busybox usleep 200000; busybox tail -n 1 /var/lib/pod-safety-agent/survived 2>/dev/null; done
        ;;
esac
# It pets once as it starts, and then not for a long time.
busybox watchdog -F -T 10 -t 1000 /dev/watchdog0 &
busybox usleep 300000
echo LAST-PET
case \$what in
    killed) busybox sleep 8; busybox kill -9 \$!; echo KILLED ;;
    stopped) busybox kill -STOP \$! ;;
esac
busybox sleep 1000
SCRIPT
    chmod 755 "$root/init"
    (cd "$root" && find . | cpio --quiet -o -H newc | gzip -1) >"$WORK/initramfs.gz"
}

qemu() { # what, more arguments
    local what=$1
    shift
    # Not KVM: a timer is what is tested, and any machine can do this. The default processor has no RDRAND: its kernel has no random numbers
    # for minutes, and the agent waits for them.
    timeout 180 "${QEMU[@]}" -accel tcg -cpu max -m 256 -display none -no-reboot -nodefaults -serial stdio -device i6300esb \
        -kernel "$kernel" -initrd "$WORK/initramfs.gz" -append "console=ttyS0 quiet panic=0 what=$what port=${port:-}" "$@"
}

now() { date +%s.%N; }

# Seconds from the last pet to the end of the machine, by the clock of this host.
measured() { # what
    local petted='' line control=$WORK/control pause=0
    [ "$1" != paused ] || pause=15
    rm -f "$control.in" "$control.out"
    mkfifo "$control.in" "$control.out"
    {
        while read -r line; do
            case $line in
                *LAST-PET*)
                    petted=$(now)
                    if [ "$pause" != 0 ]; then
                        # The machine does not notice.
                        (echo stop; sleep "$pause"; echo cont) >"$control.in" &
                    fi
                    ;;
            esac
        done
        awk -v from="${petted:?the watchdog was not petted}" -v to="$(now)" 'BEGIN { printf "%.1f", to - from }'
    } < <(exec 3<>"$control.in"; cat "$control.out" >/dev/null & qemu "$1" -chardev "pipe,id=m,path=$control" -mon "chardev=m,mode=readline" 2>/dev/null)
}

# What the agent trusts, and what the server shows.
account() {
    local folder=$WORK/account claims='{"kubernetes.io":{"node":{"name":"a","uid":"7a1c"}}}'
    local new=(req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=lease)
    mkdir -p "$folder"
    printf 'e30.%s.x' "$(printf '%s' "$claims" | base64 -w0 | tr '+/' '-_' | tr -d =)" >"$folder/token"
    {
        openssl "${new[@]}" -x509 -days 9 -keyout "$folder/ca.key" -out "$folder/ca.crt"
        openssl "${new[@]}" -keyout "$folder/server.key" -out "$folder/server.csr"
        openssl x509 -req -in "$folder/server.csr" -CA "$folder/ca.crt" -CAkey "$folder/ca.key" -CAcreateserial -days 9 \
            -extfile <(echo subjectAltName=IP:10.0.2.2) -out "$folder/server.crt"
    } 2>/dev/null
    cat "$folder/server.crt" "$folder/server.key" >"$folder/server.pem"
}

# What happens to an armed agent from outside of its machine.
happens() { # what
    sleep 7
    case $1 in
        agent-armed) sleep 20 ;;
        agent-outage)
            echo 'set_link nic off' >"$WORK/control.in"
            now >"$WORK/happened"
            sleep 30
            echo 'set_link nic on' >"$WORK/control.in"
            sleep 25
            ;;
        agent-revoked)
            kill -USR1 "$server"
            now >"$WORK/happened"
            return
            ;;
        *) return ;;
    esac
    # It was not reset until now.
    now >"$WORK/over"
    echo quit >"$WORK/control.in"
}

# Seconds from the last grant before that until the pod says nothing more, and until the machine is reset.
guarded() { # what
    local line pod='' control=$WORK/control plan='' server port end kubelet='' survived=''
    rm -f "$control.in" "$control.out" "$WORK/over" "$WORK/happened" "$WORK/grants"
    mkfifo "$control.in" "$control.out"
    python3 tests/watchdog/lease.py "$WORK/account/server.pem" >"$WORK/grants" &
    server=$!
    until [ -s "$WORK/grants" ]; do sleep 0.1; done
    read -r port <"$WORK/grants"
    while read -r line; do
        case $line in
            *POD*) pod=$(now) ;;
            *Armed:*) [ -n "$plan" ] || { happens "$1" >/dev/null & plan=$!; } ;;
            *NOW*) now >"$WORK/happened" ;;
            *'kubelet may start'*) kubelet=$(now) ;;
            *-*-*-*-*' '[0-9]*) survived=${line##* } ;;
        esac
        [[ $line == *POD* ]] || printf '%s %s\n' "$(now)" "$line" >>"$WORK/log-$1"
    done < <(exec 3<>"$control.in"; cat "$control.out" >/dev/null & qemu "$1" -chardev "pipe,id=m,path=$control" -mon "chardev=m,mode=readline" \
        -netdev user,id=n -device e1000,netdev=n,id=nic 2>/dev/null)
    end=$(now)
    kill "$server" "$plan" 2>/dev/null || true
    awk -v happened="$(cat "$WORK/happened" 2>/dev/null || echo "$end")" -v end="$end" -v over="$(cat "$WORK/over" 2>/dev/null || echo 0)" -v pod="$pod" \
        -v kubelet="${kubelet:-0}" -v survived="${survived:-0}" '
        NR > 1 && $2 == "Armed" && $1 <= happened { last = $1; grants++ }
        NR > 1 && kubelet && $1 > happened && !again { again = $1 }
        END {
            printf "%s | %s", (over && over - pod < 1) || (!over && end - pod < 1) ? "runs on" : sprintf("%.1f", pod - last), over ? "not" : sprintf("%.1f", end - last)
            printf " | %d grants", grants
            if (survived) printf ", its last record: %.1f s after its last pet", survived / 1000
            if (kubelet) printf ", a kubelet starts %.1f s after the next grant", kubelet - again
        }' "$WORK/grants"
}

account
# Each line is a figure of the record.
figures=()
figure() { # driver, what, seconds
    printf '| %s | %s | %s |\n' "$@"
    figures+=("figure=$1, $2: $3")
}
for module in i6300esb softdog; do
    initramfs "$module"
    qemu cgroups | tee "$WORK/log-cgroups-$module"
    grep -q 'test result: ok. [1-9]' "$WORK/log-cgroups-$module" || packages_die "the unit tests fail on cgroups of version 2"
    qemu check | sed "s/^/$module: /"
    for what in drill open stopped killed paused; do
        figure "$module" "$what" "$(measured "$what")"
    done
    for what in agent-{armed,stopped,killed,stopped-killed,outage,revoked}; do
        figure "$module" "$what" "$(guarded "$what")"
    done
done
kernel=${kernel##*/vmlinuz-}
tests/records/write.sh watchdog outcome=passed seconds=$((SECONDS - BEGIN)) figure="Kernel of the machine: $kernel" "${figures[@]}"
