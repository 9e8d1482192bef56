//! The wire types: the fields of API objects that this program reads.
//!
//! Decodes responses into the fields that decisions need, and nothing else. Every message is both a serde type and a
//! prost message with the field numbers of Kubernetes' `generated.proto`, so JSON and protobuf cannot diverge;
//! undeclared fields are skipped without an allocation.
//!
//! Invariant: an object that cannot be decoded is an error of that object only, never of its list: a [`List`] returns
//! its objects one by one, undecoded.

mod codec;
mod error;
mod eviction;
mod json;
mod list;
mod message;
mod messages;
mod meta;
mod placement;
mod policy;
mod renewal;
mod storage;
mod time;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod recorded;

pub use codec::{Custom, CustomMeta, Decode, Encoding, Event, Frames, PROTOBUF_FIRST, Raw};
pub use error::WireError;
pub use eviction::{
    Eviction, EvictionPod, EvictionRequest, EvictionRequestSpec, EvictionRequestStatus, EvictionRequester,
    EvictionSpec, EvictionStatus, EvictionTarget, FieldsV1, ManagedEviction, ManagedFields, ManagersMeta, OnlyManagers,
    ResponderStatus, TargetResponder,
};
pub use list::List;
pub use messages::{
    ContainerSpec, ContainerState, ContainerStatus, EvictionResponder, Lease, LeaseSpec, Node, NodeCondition, NodeInfo,
    NodeSpec, NodeStatus, Pod, PodCondition, PodSpec, PodStatus, Status, StatusCause, StatusDetails, Taint, Toleration,
};
pub use meta::{MapKey, ObjectMeta, OnlyMeta, OwnerReference, Presence};
pub use placement::{
    Container, NodeAllocatable, NodeAllocatableSpec, NodeAllocatableStatus, PodNeeds, PodNeedsSpec, Quantity,
    Resources, Volume, VolumeSource,
};
pub use policy::{
    ApiResource, ApiResourceList, Budget, BudgetSpec, BudgetStatus, Condition, IntOrString, LabelRequirement,
    LabelSelector, Workload, WorkloadSpec,
};
pub use renewal::Renewal;
pub use storage::{
    ClaimReference, ClaimSource, CsiDriver, CsiDriverSpec, CsiSource, PersistentVolume, PersistentVolumeClaim,
    PersistentVolumeClaimSpec, PersistentVolumeSource, PersistentVolumeSpec, PodVolume, PodVolumeSource,
    SchedulingGate, VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec, VolumeAttachmentStatus,
};
pub use time::Time;
