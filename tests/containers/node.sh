#!/bin/bash
# A node of the cluster: containerd, the kubelet and kube-proxy in namespaces of their own. cluster.py starts this.
set -eu
name=$1 address=$2 pods=$3 cgroup=$4 directory=$5 programs=$6 images=$7
PATH=$programs:$PATH

# What they write at fixed places.
for place in /run /var/lib /var/log; do
    mount -t tmpfs none "$place"
done
mount --make-rshared /
hostname "$name"

# The kubelet would set them for the whole machine; they are right already, as far as it can see.
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1; do
    echo "${setting#*=}" >"$directory/sysctl"
    mount --bind "$directory/sysctl" "/proc/sys/${setting%=*}"
    # The next has another file.
    rm "$directory/sysctl"
done

# Of version 1 all controllers have a tree each; a new cpuset has no processors.
for tree in /sys/fs/cgroup/{cpu,cpuacct,cpuset,memory,pids,devices,freezer,blkio,systemd}; do
    parent=$tree
    for part in ${cgroup//\// }; do
        mkdir -p "$parent/$part"
        if [[ $tree == */cpuset ]]; then
            cat "$parent/cpuset.cpus" >"$parent/$part/cpuset.cpus"
            cat "$parent/cpuset.mems" >"$parent/$part/cpuset.mems"
        fi
        parent+=/$part
    done
done

mkdir "$directory"/{cni,containerd}
# Gone with its namespace: to remove the files of each image takes longer than to write them.
mount -t tmpfs none "$directory/containerd"
cat >"$directory/cni/10-pods.conflist" <<END
{"cniVersion": "0.4.0", "name": "pods", "plugins": [
    {"type": "ptp", "ipam": {"type": "host-local", "subnet": "$pods", "routes": [{"dst": "0.0.0.0/0"}]}}]}
END
cat >"$directory/containerd.toml" <<END
version = 2
root = "$directory/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "localhost/pause:1"
# Without CAP_SYS_RESOURCE it may only be raised.
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "$programs"
conf_dir = "$directory/cni"
END
cat >"$directory/kubelet.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, x509: {clientCAFile: $directory/../ca.crt}}
cgroupRoot: /$cgroup
clusterDNS: [10.79.0.1]
clusterDomain: cluster.local
failSwapOn: false
protectKernelDefaults: true
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
resolvConf: $directory/resolv.conf
END
: >"$directory/resolv.conf"

containerd --config="$directory/containerd.toml" >"$directory/containerd.log" 2>&1 &
until ctr version >/dev/null 2>&1; do sleep 0.1; done
ctr --namespace=k8s.io images import "$images" >"$directory/images.log" 2>&1
kubelet --config="$directory/kubelet.yaml" --kubeconfig="$directory/../node-$name.json" --hostname-override="$name" \
    --node-ip="$address" --cert-dir="$directory/certificates" --container-runtime=remote \
    --container-runtime-endpoint=unix:///run/containerd/containerd.sock >"$directory/kubelet.log" 2>&1 &
kube-proxy --kubeconfig="$directory/../proxy.json" --hostname-override="$name" --cluster-cidr=10.244.0.0/16 \
    --conntrack-max-per-core=0 --conntrack-tcp-timeout-established=0 --conntrack-tcp-timeout-close-wait=0 \
    --proxy-mode=iptables >"$directory/proxy.log" 2>&1 &
wait
