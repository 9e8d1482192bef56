# A kind node, for machines that cannot pull the published one: Debian, kind's own files for the inside of a node, and
# Kubernetes built from its modules. The images of the control plane are stages of their own; node.sh puts them inside.
ARG DEBIAN

# What every program of the control plane needs beside itself. They are linked with the C library, and kube-proxy calls
# iptables, which looks for its extensions when it needs them.
FROM ${DEBIAN} AS collected
COPY collect.sh /
RUN ["/collect.sh"]

FROM scratch AS libraries
COPY --from=collected /collected /
ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin

FROM libraries AS kube-apiserver
COPY kube-apiserver /usr/local/bin/
FROM libraries AS kube-controller-manager
COPY kube-controller-manager /usr/local/bin/
FROM libraries AS kube-scheduler
COPY kube-scheduler /usr/local/bin/
FROM libraries AS etcd
COPY etcd /usr/local/bin/
FROM libraries AS kube-proxy
COPY kube-proxy /usr/local/bin/
FROM libraries AS coredns
COPY coredns /
ENTRYPOINT ["/coredns"]
# Holds a pod's namespaces, and does nothing else.
FROM libraries AS pause
ENTRYPOINT ["/usr/bin/sleep", "infinity"]
FROM libraries AS pod-network
COPY kubectl pod-network.sh /usr/local/bin/
ENTRYPOINT ["/usr/local/bin/pod-network.sh"]

FROM ${DEBIAN} AS node
# The name of the image that holds a pod's namespaces.
ARG PAUSE
# Of systemd's units only those that are chosen below: nothing of a node's inside is for udev, consoles or file systems.
# Without an id that all nodes would share: each draws its own.
RUN rm -rf /etc/systemd/system/*.wants/* \
    && cd /lib/systemd/system \
    && rm -f multi-user.target.wants/* local-fs.target.wants/* basic.target.wants/* \
        sockets.target.wants/*udev* sockets.target.wants/*initctl* sysinit.target.wants/systemd-tmpfiles-setup.service \
    && printf 'ReadKMsg=no\n' >>/etc/systemd/journald.conf \
    && ln -sf /usr/lib/systemd/systemd /sbin/init \
    && systemctl mask systemd-binfmt.service \
    && rm -f /etc/machine-id /var/lib/dbus/machine-id
COPY kind-base/ /
COPY kubelet kubeadm kubectl /usr/bin/
COPY kubelet.conf /kind/kubelet.conf.d/machine.conf
COPY manifests /kind/manifests
COPY kubernetes-version /kind/version
# kind looks for containerd and plugins where it installs its own. The lower score of the out-of-memory killer, and
# the newer cgroups, are what a small machine may not have.
RUN chmod 755 /usr/local/bin/entrypoint /kind/bin/* \
    && ln -s /usr/bin/containerd /usr/bin/ctr /usr/bin/containerd-shim-runc-v2 /usr/local/bin/ \
    && mkdir -p /opt/cni /etc/kubernetes/manifests && ln -s /usr/lib/cni /opt/cni/bin \
    && sed -i -e 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' \
        -e 's|sandbox_image = .*|sandbox_image = "'"$PAUSE"'"|' /etc/containerd/config.toml \
    && sed -i 's|$| --config-dir=/kind/kubelet.conf.d|' /etc/default/kubelet \
    && ctr oci spec | jq 'del(.process.rlimits)' >/etc/containerd/cri-base.json \
    && systemctl enable kubelet.service containerd.service undo-mount-hacks.service
ENV container=docker
STOPSIGNAL SIGRTMIN+3
ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]
