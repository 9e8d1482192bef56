//! The messages. Tags are the field numbers of `k8s.io/api/*/generated.proto` v0.37.2.

use serde::{Deserialize, Serialize};

use super::Time;
use super::message::{message, null_is_empty};
use super::meta::{ObjectMeta, Presence};
use super::storage::{PodVolume, SchedulingGate};

message! {
    /// A pod.
    Pod {
        /// Its metadata.
        metadata: Option<ObjectMeta> = [message, optional, tag = "1"];
        /// What was asked for.
        spec: Option<PodSpec> = [message, optional, tag = "2"];
        /// What was reported.
        status: Option<PodStatus> = [message, optional, tag = "3"];
    }
}

message! {
    /// `pod.spec`.
    PodSpec {
        /// How long its processes may take to end; the API server sets 30 where nobody says.
        termination_grace_period_seconds: Option<i64> = [int64, optional, tag = "4"];
        /// Its volumes.
        volumes: Vec<PodVolume> = [message, repeated, tag = "1"] serde[deserialize_with = "null_is_empty"];
        /// Its containers.
        containers: Vec<ContainerSpec> = [message, repeated, tag = "2"] serde[deserialize_with = "null_is_empty"];
        /// Its init and sidecar containers.
        init_containers: Vec<ContainerSpec> = [message, repeated, tag = "20"] serde[deserialize_with = "null_is_empty"];
        /// Its debug containers.
        ephemeral_containers: Vec<ContainerSpec> = [message, repeated, tag = "34"] serde[deserialize_with = "null_is_empty"];
        /// Whether its containers are restarted: `Always`, `OnFailure` or `Never`.
        restart_policy: Option<String> = [string, optional, tag = "3"];
        /// The node that it is bound to; empty before.
        node_name: Option<String> = [string, optional, tag = "10"];
        /// What keeps it from the scheduler.
        scheduling_gates: Vec<SchedulingGate> = [message, repeated, tag = "38"] serde[deserialize_with = "null_is_empty"];
        /// It is scheduled with others, and is not evicted alone.
        scheduling_group: Option<Presence> = [message, optional, tag = "43"];
        /// Who is asked to evict it before the API server is.
        eviction_responders: Vec<EvictionResponder> = [message, repeated, tag = "44"] serde[deserialize_with = "null_is_empty"];
        /// Taints that it bears.
        tolerations: Vec<Toleration> = [message, repeated, tag = "22"] serde[deserialize_with = "null_is_empty"];
    }
}

message! {
    /// One of `pod.spec.evictionResponders`.
    EvictionResponder {
        /// Who.
        name: Option<String> = [string, optional, tag = "1"];
        /// The highest comes first.
        priority: Option<i32> = [int32, optional, tag = "2"];
    }
}

message! {
    /// A toleration.
    Toleration {
        /// Of which key; empty: of all.
        key: Option<String> = [string, optional, tag = "1"];
        /// `Exists` or `Equal`, which is the default.
        operator: Option<String> = [string, optional, tag = "2"];
        /// Of which value.
        value: Option<String> = [string, optional, tag = "3"];
        /// Of which effect; empty: of all.
        effect: Option<String> = [string, optional, tag = "4"];
        /// For how long; absent: for ever.
        toleration_seconds: Option<i64> = [int64, optional, tag = "5"];
    }
}

message! {
    /// `pod.status`.
    PodStatus {
        /// The phase.
        phase: Option<String> = [string, optional, tag = "1"];
        /// Its conditions.
        conditions: Vec<PodCondition> = [message, repeated, tag = "2"] serde[deserialize_with = "null_is_empty"];
        /// Why the pod is as it is, in one word.
        reason: Option<String> = [string, optional, tag = "4"];
        /// Reports on the ordinary containers.
        container_statuses: Vec<ContainerStatus> = [message, repeated, tag = "8"] serde[deserialize_with = "null_is_empty"];
        /// Reports on the init and sidecar containers.
        init_container_statuses: Vec<ContainerStatus> = [message, repeated, tag = "10"] serde[deserialize_with = "null_is_empty"];
        /// Reports on the debug containers.
        ephemeral_container_statuses: Vec<ContainerStatus> = [message, repeated, tag = "13"] serde[deserialize_with = "null_is_empty"];
        /// Which `metadata.generation` it is about (KEP-5067).
        observed_generation: Option<i64> = [int64, optional, tag = "17"];
    }
}

message! {
    /// A container, as it was asked for.
    ContainerSpec {
        /// Whether it is restarted, where that differs from the pod's others; `Always` on an init container: a sidecar.
        restart_policy: Option<String> = [string, optional, tag = "24"];
    }
}

message! {
    /// One condition of a pod.
    PodCondition {
        /// Which one.
        r#type: Option<String> = [string, optional, tag = "1"];
        /// `True`, `False` or `Unknown`.
        status: Option<String> = [string, optional, tag = "2"];
        /// When the status last changed.
        last_transition_time: Option<Time> = [message, optional, tag = "4"];
        /// One word.
        reason: Option<String> = [string, optional, tag = "5"];
    }
}

message! {
    /// A report on one container.
    ContainerStatus {
        /// Its state now.
        state: Option<ContainerState> = [message, optional, tag = "2"];
        /// How often it was restarted.
        restart_count: Option<i32> = [int32, optional, tag = "5"];
    }
}

message! {
    /// `waiting`, `running` or `terminated`; only one of them is read.
    ContainerState {
        /// Set while the container runs.
        running: Option<Presence> = [message, optional, tag = "2"];
        /// Set once it has terminated.
        terminated: Option<Presence> = [message, optional, tag = "3"];
    }
}

message! {
    /// A node.
    Node {
        /// Its metadata.
        metadata: Option<ObjectMeta> = [message, optional, tag = "1"];
        /// What was asked for.
        spec: Option<NodeSpec> = [message, optional, tag = "2"];
        /// What was reported.
        status: Option<NodeStatus> = [message, optional, tag = "3"];
    }
}

message! {
    /// `node.spec`.
    NodeSpec {
        /// Which machine it is to its provider.
        provider_id: Option<String> = [string, optional, tag = "3"] serde[rename = "providerID"];
        /// The scheduler takes it for no new pod: it is cordoned.
        unschedulable: bool = [bool, tag = "4"];
        /// Its taints.
        taints: Vec<Taint> = [message, repeated, tag = "5"] serde[deserialize_with = "null_is_empty"];
    }
}

message! {
    /// A taint.
    Taint {
        /// Its key.
        key: Option<String> = [string, optional, tag = "1"];
        /// Its value.
        value: Option<String> = [string, optional, tag = "2"];
        /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
        effect: Option<String> = [string, optional, tag = "3"];
        /// When it was added, by the clock of whoever did, if that says so.
        time_added: Option<Time> = [message, optional, tag = "4"];
    }
}

message! {
    /// `node.status`.
    NodeStatus {
        /// Its conditions.
        conditions: Vec<NodeCondition> = [message, repeated, tag = "4"] serde[deserialize_with = "null_is_empty"];
        /// Where it is reached.
        addresses: Vec<NodeAddress> = [message, repeated, tag = "5"] serde[deserialize_with = "null_is_empty"];
        /// At which port its kubelet listens.
        daemon_endpoints: Option<NodeDaemonEndpoints> = [message, optional, tag = "6"];
        /// What its machine and its boot are.
        node_info: Option<NodeInfo> = [message, optional, tag = "7"];
        /// The attachable volumes that its kubelet has mounted or is about to, by their unique names.
        volumes_in_use: Vec<String> = [string, repeated, tag = "9"] serde[deserialize_with = "null_is_empty"];
    }
}

message! {
    /// One address of a node.
    NodeAddress {
        /// `InternalIP`, `ExternalIP`, `Hostname` …
        r#type: Option<String> = [string, optional, tag = "1"];
        /// The address.
        address: Option<String> = [string, optional, tag = "2"];
    }
}

message! {
    /// `node.status.daemonEndpoints`.
    NodeDaemonEndpoints {
        /// That of the kubelet.
        kubelet_endpoint: Option<DaemonEndpoint> = [message, optional, tag = "1"];
    }
}

message! {
    /// Where a daemon listens.
    DaemonEndpoint {
        /// The port.
        port: Option<i32> = [int32, optional, tag = "1"] serde[rename = "Port"];
    }
}

message! {
    /// `node.status.nodeInfo`.
    NodeInfo {
        /// The machine's own number, by its firmware.
        system_uuid: Option<String> = [string, optional, tag = "2"] serde[rename = "systemUUID"];
        /// The version of its kubelet, such as `v1.37.2`.
        kubelet_version: Option<String> = [string, optional, tag = "7"];
        /// It changes whenever the machine boots.
        boot_id: Option<String> = [string, optional, tag = "3"] serde[rename = "bootID"];
    }
}

message! {
    /// One condition of a node.
    NodeCondition {
        /// Which one.
        r#type: Option<String> = [string, optional, tag = "1"];
        /// `True`, `False` or `Unknown`.
        status: Option<String> = [string, optional, tag = "2"];
        /// When its kubelet last looked, by the kubelet's clock.
        last_heartbeat_time: Option<Time> = [message, optional, tag = "3"];
        /// When the status last changed, by the clock of whoever changed it.
        last_transition_time: Option<Time> = [message, optional, tag = "4"];
    }
}

message! {
    /// A Lease.
    Lease {
        /// Its metadata.
        metadata: Option<ObjectMeta> = [message, optional, tag = "1"];
        /// Who holds it since when.
        spec: Option<LeaseSpec> = [message, optional, tag = "2"];
    }
}

message! {
    /// `lease.spec`.
    LeaseSpec {
        /// Who holds it; empty when released.
        holder_identity: Option<String> = [string, optional, tag = "1"];
        /// For how long after the last renewal nobody else may take it.
        lease_duration_seconds: Option<i32> = [int32, optional, tag = "2"];
        /// When the holder took it, by the holder's clock.
        acquire_time: Option<Time> = [message, optional, tag = "3"];
        /// When the holder last renewed it, by the holder's clock.
        renew_time: Option<Time> = [message, optional, tag = "4"];
        /// How often it changed hands.
        lease_transitions: Option<i32> = [int32, optional, tag = "5"];
    }
}

message! {
    /// The API server's word on a request that failed.
    Status {
        /// For people.
        message: Option<String> = [string, optional, tag = "3"];
        /// For programs.
        reason: Option<String> = [string, optional, tag = "4"];
        /// More for programs.
        details: Option<StatusDetails> = [message, optional, tag = "5"];
        /// The HTTP code.
        code: Option<i32> = [int32, optional, tag = "6"];
    }
}

message! {
    /// `status.details`.
    StatusDetails {
        /// What exactly was wrong.
        causes: Vec<StatusCause> = [message, repeated, tag = "4"] serde[deserialize_with = "null_is_empty"];
        /// When to come back, in seconds.
        retry_after_seconds: Option<i32> = [int32, optional, tag = "5"];
    }
}

message! {
    /// One thing that was wrong.
    StatusCause {
        /// For programs.
        reason: Option<String> = [string, optional, tag = "1"];
        /// For people.
        message: Option<String> = [string, optional, tag = "2"];
    }
}
