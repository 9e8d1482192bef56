//! The messages. Tags are the field numbers of `k8s.io/api/*/generated.proto` v0.37.2.

use serde::{Deserialize, Serialize};

use super::Time;
use super::message::{messages, null_is_empty};
use super::meta::{ObjectMeta, Presence};
use super::storage::{PodVolume, SchedulingGate};

messages! {
    /// A pod.
    Pod {
        /// Its metadata.
        metadata: Option<ObjectMeta> = [message, optional, tag = "1"];
        /// The desired state.
        spec: Option<PodSpec> = [message, optional, tag = "2"];
        /// The observed state.
        status: Option<PodStatus> = [message, optional, tag = "3"];
    }

    /// `pod.spec`.
    PodSpec {
        /// The grace period of its processes; the API server's default is 30.
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
        /// The node to which it is bound; empty before.
        node_name: Option<String> = [string, optional, tag = "10"];
        /// The gates that keep it from being scheduled.
        scheduling_gates: Vec<SchedulingGate> = [message, repeated, tag = "38"] serde[deserialize_with = "null_is_empty"];
        /// Set if it is scheduled as part of a group, and so not evicted alone.
        scheduling_group: Option<Presence> = [message, optional, tag = "43"];
        /// The responders that may evict it before the API server's own evictor.
        eviction_responders: Vec<EvictionResponder> = [message, repeated, tag = "44"] serde[deserialize_with = "null_is_empty"];
        /// Taints that it tolerates.
        tolerations: Vec<Toleration> = [message, repeated, tag = "22"] serde[deserialize_with = "null_is_empty"];
    }

    /// An element of `pod.spec.evictionResponders`.
    EvictionResponder {
        /// Its name.
        name: Option<String> = [string, optional, tag = "1"];
        /// Responders with a higher priority have their turn first.
        priority: Option<i32> = [int32, optional, tag = "2"];
    }

    /// A toleration.
    Toleration {
        /// The key; empty: every key.
        key: Option<String> = [string, optional, tag = "1"];
        /// `Exists` or `Equal`, which is the default.
        operator: Option<String> = [string, optional, tag = "2"];
        /// The value.
        value: Option<String> = [string, optional, tag = "3"];
        /// The effect; empty: every effect.
        effect: Option<String> = [string, optional, tag = "4"];
        /// For how long; absent: for ever.
        toleration_seconds: Option<i64> = [int64, optional, tag = "5"];
    }

    /// `pod.status`.
    PodStatus {
        /// The phase.
        phase: Option<String> = [string, optional, tag = "1"];
        /// Its conditions.
        conditions: Vec<PodCondition> = [message, repeated, tag = "2"] serde[deserialize_with = "null_is_empty"];
        /// The reason of the state, in CamelCase.
        reason: Option<String> = [string, optional, tag = "4"];
        /// The statuses of the ordinary containers.
        container_statuses: Vec<ContainerStatus> = [message, repeated, tag = "8"] serde[deserialize_with = "null_is_empty"];
        /// The statuses of the init and sidecar containers.
        init_container_statuses: Vec<ContainerStatus> = [message, repeated, tag = "10"] serde[deserialize_with = "null_is_empty"];
        /// The statuses of the debug containers.
        ephemeral_container_statuses: Vec<ContainerStatus> = [message, repeated, tag = "13"] serde[deserialize_with = "null_is_empty"];
        /// The `metadata.generation` that it reflects (KEP-5067).
        observed_generation: Option<i64> = [int64, optional, tag = "17"];
    }

    /// The spec of a container.
    ContainerSpec {
        /// Whether it is restarted, where that differs from the pod's policy; `Always` on an init container: a
        /// sidecar.
        restart_policy: Option<String> = [string, optional, tag = "24"];
    }

    /// A condition of a pod.
    PodCondition {
        /// The type.
        r#type: Option<String> = [string, optional, tag = "1"];
        /// `True`, `False` or `Unknown`.
        status: Option<String> = [string, optional, tag = "2"];
        /// When the status last changed.
        last_transition_time: Option<Time> = [message, optional, tag = "4"];
        /// The reason, in CamelCase.
        reason: Option<String> = [string, optional, tag = "5"];
    }

    /// The status of a container.
    ContainerStatus {
        /// Its current state.
        state: Option<ContainerState> = [message, optional, tag = "2"];
        /// How often it was restarted.
        restart_count: Option<i32> = [int32, optional, tag = "5"];
    }

    /// `waiting`, `running` or `terminated`; `waiting` is not read.
    ContainerState {
        /// Set while the container runs.
        running: Option<Presence> = [message, optional, tag = "2"];
        /// Set once it has terminated.
        terminated: Option<Presence> = [message, optional, tag = "3"];
    }

    /// A node.
    Node {
        /// Its metadata.
        metadata: Option<ObjectMeta> = [message, optional, tag = "1"];
        /// The desired state.
        spec: Option<NodeSpec> = [message, optional, tag = "2"];
        /// The observed state.
        status: Option<NodeStatus> = [message, optional, tag = "3"];
    }

    /// `node.spec`.
    NodeSpec {
        /// The identity of the machine at its provider.
        provider_id: Option<String> = [string, optional, tag = "3"] serde[rename = "providerID"];
        /// Whether it is cordoned, so that no new pod is scheduled to it.
        unschedulable: bool = [bool, tag = "4"];
        /// Its taints.
        taints: Vec<Taint> = [message, repeated, tag = "5"] serde[deserialize_with = "null_is_empty"];
    }

    /// A taint.
    Taint {
        /// Its key.
        key: Option<String> = [string, optional, tag = "1"];
        /// Its value.
        value: Option<String> = [string, optional, tag = "2"];
        /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
        effect: Option<String> = [string, optional, tag = "3"];
        /// When it was added, by the writer's clock, if set.
        time_added: Option<Time> = [message, optional, tag = "4"];
    }

    /// `node.status`.
    NodeStatus {
        /// Its conditions.
        conditions: Vec<NodeCondition> = [message, repeated, tag = "4"] serde[deserialize_with = "null_is_empty"];
        /// The addresses at which it is reachable.
        addresses: Vec<NodeAddress> = [message, repeated, tag = "5"] serde[deserialize_with = "null_is_empty"];
        /// The port on which its kubelet listens.
        daemon_endpoints: Option<NodeDaemonEndpoints> = [message, optional, tag = "6"];
        /// Its machine and boot.
        node_info: Option<NodeInfo> = [message, optional, tag = "7"];
        /// The attachable volumes that its kubelet has mounted or is about to mount, by their unique names.
        volumes_in_use: Vec<String> = [string, repeated, tag = "9"] serde[deserialize_with = "null_is_empty"];
    }

    /// An address of a node.
    NodeAddress {
        /// `InternalIP`, `ExternalIP`, `Hostname` …
        r#type: Option<String> = [string, optional, tag = "1"];
        /// The address.
        address: Option<String> = [string, optional, tag = "2"];
    }

    /// `node.status.daemonEndpoints`.
    NodeDaemonEndpoints {
        /// The endpoint of the kubelet.
        kubelet_endpoint: Option<DaemonEndpoint> = [message, optional, tag = "1"];
    }

    /// The endpoint of a daemon.
    DaemonEndpoint {
        /// The port.
        port: Option<i32> = [int32, optional, tag = "1"] serde[rename = "Port"];
    }

    /// `node.status.nodeInfo`.
    NodeInfo {
        /// The UUID of the machine, by its firmware.
        system_uuid: Option<String> = [string, optional, tag = "2"] serde[rename = "systemUUID"];
        /// The version of its kubelet, such as `v1.37.2`.
        kubelet_version: Option<String> = [string, optional, tag = "7"];
        /// The boot ID: it changes whenever the machine boots.
        boot_id: Option<String> = [string, optional, tag = "3"] serde[rename = "bootID"];
    }

    /// A condition of a node.
    NodeCondition {
        /// The type.
        r#type: Option<String> = [string, optional, tag = "1"];
        /// `True`, `False` or `Unknown`.
        status: Option<String> = [string, optional, tag = "2"];
        /// When its kubelet last checked it, by the kubelet's clock.
        last_heartbeat_time: Option<Time> = [message, optional, tag = "3"];
        /// When the status last changed, by the writer's clock.
        last_transition_time: Option<Time> = [message, optional, tag = "4"];
    }

    /// A Lease.
    Lease {
        /// Its metadata.
        metadata: Option<ObjectMeta> = [message, optional, tag = "1"];
        /// The holder, and the times.
        spec: Option<LeaseSpec> = [message, optional, tag = "2"];
    }

    /// `lease.spec`.
    LeaseSpec {
        /// The holder; empty when released.
        holder_identity: Option<String> = [string, optional, tag = "1"];
        /// For how long after the last renewal no other client may take it.
        lease_duration_seconds: Option<i32> = [int32, optional, tag = "2"];
        /// When the holder took it, by the holder's clock.
        acquire_time: Option<Time> = [message, optional, tag = "3"];
        /// When the holder last renewed it, by the holder's clock.
        renew_time: Option<Time> = [message, optional, tag = "4"];
        /// How often the holder changed.
        lease_transitions: Option<i32> = [int32, optional, tag = "5"];
    }

    /// The API server's answer to a failed request.
    Status {
        /// The message, for operators.
        message: Option<String> = [string, optional, tag = "3"];
        /// The reason, for programs.
        reason: Option<String> = [string, optional, tag = "4"];
        /// Details, for programs.
        details: Option<StatusDetails> = [message, optional, tag = "5"];
        /// The HTTP code.
        code: Option<i32> = [int32, optional, tag = "6"];
    }

    /// `status.details`.
    StatusDetails {
        /// The causes.
        causes: Vec<StatusCause> = [message, repeated, tag = "4"] serde[deserialize_with = "null_is_empty"];
        /// When to retry, in seconds.
        retry_after_seconds: Option<i32> = [int32, optional, tag = "5"];
    }

    /// A cause of the failure.
    StatusCause {
        /// The reason, for programs.
        reason: Option<String> = [string, optional, tag = "1"];
        /// The message, for operators.
        message: Option<String> = [string, optional, tag = "2"];
    }
}
