//! Reads devices and their Secrets by quorum, and makes orders of them.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use zeroize::Zeroizing;

use super::hosts::{self, HostError};
use super::identity::{self, IdentityError};
use super::instance::InstanceError;
use super::objects::{ClientAddresses, ObjectOrder, Reach, reach};
use super::render::{NodeFacts, RenderError, render};
use super::secrets::{CONSENT, SecretObject, consents};
use super::status_checker::QuorumReader;
use crate::api::{
    ActTime, DeviceDriver, DeviceRef, FenceDeviceSpec, FenceDeviceStatus, IdentityCheck, Incarnation, PROTECTED,
    SecretParameter, group_path,
};
use crate::client::{ApiError, Call, read_secret};
use crate::model::is_kubernetes_name;
use crate::transport::{Act, Answer, DeviceError, Machine, Order, Secret, Value, is_secret_name, off_ambiguity};
use crate::wire;

type DeviceObject = wire::Custom<FenceDeviceSpec, FenceDeviceStatus>;

/// Why there is no order for a device and a node.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OrderError {
    #[error("device {0} does not exist")]
    NoDevice(DeviceRef),
    #[error(
        "device {0} is in a namespace that pod-safety does not use for fencing: add it to --fencing-namespaces (chart: controllers.fencing.namespaces)"
    )]
    NotFollowed(DeviceRef),
    #[error(
        "device {0} is no longer trusted, because evidence from it was contradicted. Correct it, then recreate the FenceDevice, which removes the condition Trusted"
    )]
    NotTrusted(DeviceRef),
    #[error("device {device} is not for node {node}: its nodeSelector does not select it")]
    NotForNode { device: DeviceRef, node: String },
    #[error(
        "device {device} has the same parameters for every node, and selects node {node} by the label {key:?}, which any kubelet may set. Name its parameters in nodeParameters, or select it by a label below {PROTECTED}/"
    )]
    Label { device: DeviceRef, node: String, key: String },
    #[error("device {0} is a person (driver Manual): see pod-safety confirm-down")]
    Manual(DeviceRef),
    #[error("device {device}")]
    Object { device: DeviceRef, source: Box<DeviceError> },
    #[error("device {device}, parameter {parameter:?}")]
    Render { device: DeviceRef, parameter: String, source: Box<RenderError> },
    #[error("device {device}, parameter {parameter:?}")]
    Host { device: DeviceRef, parameter: String, source: HostError },
    #[error("device {device}")]
    Identity { device: DeviceRef, source: Box<IdentityError> },
    #[error("device {device}")]
    Instance { device: DeviceRef, source: Box<InstanceError> },
    #[error("device {device}, parameter {parameter:?}: {why}")]
    Secret { device: DeviceRef, parameter: String, why: String },
    #[error("reading what is needed for device {device} failed")]
    Read { device: DeviceRef, source: Box<ApiError> },
}

impl OrderError {
    /// The category in statuses and metrics, from a closed set.
    pub(super) fn category(&self) -> &'static str {
        match self {
            Self::NoDevice(_) => "NoDevice",
            Self::NotFollowed(_) => "NotFollowed",
            Self::NotTrusted(_) => "NotTrusted",
            Self::NotForNode { .. } => "NotForNode",
            Self::Label { .. } => "LabelNotProtected",
            Self::Manual(_) => "Manual",
            Self::Object { source, .. } => source.category(),
            Self::Render { .. } => "BadTemplate",
            Self::Host { .. } => "HostNotAllowed",
            Self::Identity { .. } => "IdentityChanged",
            Self::Instance { .. } => "AnotherMachine",
            Self::Secret { .. } => "BadSecret",
            Self::Read { .. } => "NotRead",
        }
    }
}

/// How an order is sent.
#[derive(Debug)]
pub(super) enum Transport {
    /// Through a transport.
    Order(Order),
    /// Through an object of the cluster.
    Object(Box<ObjectOrder>),
}

/// A device with its order for one node.
#[derive(Debug)]
pub(super) struct ReadyDevice {
    pub(super) driver: DeviceDriver,
    pub(super) check: IdentityCheck,
    /// The instance that its parameters name by the node's providerID alone, if they do.
    pub(super) instance: Option<String>,
    pub(super) transport: Transport,
}

impl ReadyDevice {
    /// Which other state the device reports as off: then its "off" needs a second fact.
    pub(super) fn off_ambiguity(&self) -> Option<&'static str> {
        match &self.transport {
            Transport::Order(order) => off_ambiguity(&order.driver),
            Transport::Object(order) => order.driver.off_ambiguity(),
        }
    }
}

impl QuorumReader<'_> {
    pub(super) async fn read_device(&self, device: &DeviceRef) -> Result<DeviceObject, OrderError> {
        if !(is_kubernetes_name(&device.namespace) && is_kubernetes_name(&device.name)) {
            return Err(OrderError::NoDevice(device.clone()));
        }
        if !self.cache.read().view().is_fencing_namespace(&device.namespace) {
            return Err(OrderError::NotFollowed(device.clone()));
        }
        match self
            .connection
            .send(Call::get(device_path(device)))
            .await
            .and_then(|raw| raw.decode().map_err(ApiError::Undecodable))
        {
            Ok(read) => Ok(read),
            Err(error) if error.is_not_found() => Err(OrderError::NoDevice(device.clone())),
            Err(source) => Err(OrderError::Read { device: device.clone(), source: Box::new(source) }),
        }
    }

    /// Facts about the node by a quorum read. Without a UID: of any Node of that name.
    pub(super) async fn read_facts(&self, node: &Incarnation) -> Result<NodeFacts, ApiError> {
        let read = match self.connection.send(Call::get(format!("/api/v1/nodes/{}", node.name))).await {
            Ok(raw) => raw.decode::<wire::Node>().map_err(ApiError::Undecodable)?,
            Err(error) if error.is_not_found() => return Ok(NodeFacts::for_missing_node(node)),
            Err(error) => return Err(error),
        };
        let meta = read.metadata.unwrap_or_default();
        // Another Node has that name: its labels are not about this one.
        if !node.uid.is_empty() && meta.uid.as_deref() != Some(&node.uid) {
            return Ok(NodeFacts::for_missing_node(node));
        }
        let text = |text: Option<String>| text.unwrap_or_default().into();
        let machine = Machine {
            node: node.name.as_str().into(),
            system_uuid: text(read.status.and_then(|status| status.node_info).and_then(|info| info.system_uuid)),
            provider_id: text(read.spec.and_then(|spec| spec.provider_id)),
        };
        let uid = meta.uid.unwrap_or_default();
        Ok(NodeFacts { machine, labels: Some(meta.labels), uid, incarnation: node.clone() })
    }

    /// Prepares the order for one device.
    pub(super) async fn prepare_order(
        &self,
        device: &DeviceRef,
        facts: &NodeFacts,
        act: Act,
    ) -> Result<ReadyDevice, OrderError> {
        let object = self.read_device(device).await?;
        let spec = object.spec;
        if object.status.as_ref().and_then(|status| status.condition_status("Trusted")) == Some("False") {
            return Err(OrderError::NotTrusted(device.clone()));
        }
        // The labels of a node whose object is gone are unknown: the device was named for it.
        if facts.labels.as_ref().is_some_and(|labels| !spec.node_selector.matches(labels)) {
            return Err(OrderError::NotForNode { device: device.clone(), node: facts.machine.node.to_string() });
        }
        let ActTime(seconds) = match act {
            Act::Off => spec.timeouts.power_off,
            Act::On => spec.timeouts.power_on,
            Act::Look => spec.timeouts.status,
        };
        let within = Duration::from_secs(seconds.into());
        let (driver, check) = (spec.driver, spec.identity_check);
        let reached = match reach(driver) {
            Reach::Transport(reached) => reached(&spec),
            Reach::Operator => return Err(OrderError::Manual(device.clone())),
            Reach::Object(by) => {
                let mut recorded = object.status.into_iter().flat_map(|status| status.targets);
                let clients = recorded
                    .find(|target| *target.node == *facts.machine.node)
                    .map(|target| ClientAddresses { cidrs: target.clients, boot_id: target.boot_id })
                    .unwrap_or_default();
                let (device, facts) = (device.clone(), facts.clone());
                let order = ObjectOrder { device, driver: by, spec, facts, clients, act, within };
                return Ok(ReadyDevice {
                    driver,
                    check,
                    instance: None,
                    transport: Transport::Object(Box::new(order)),
                });
            }
        };
        let node = &*facts.machine.node;
        if let Some(key) = spec.kubelet_settable_label(node).filter(|_| !identity::requires_match(&spec, facts)) {
            let (device, node, key) = (device.clone(), node.to_owned(), key.to_owned());
            return Err(OrderError::Label { device, node, key });
        }
        let targets = object.status.as_ref().map_or(&[][..], |status| &status.targets);
        identity::check(identity::IdentitySources::from_spec(&spec), facts, targets)
            .map_err(|source| OrderError::Identity { device: device.clone(), source: Box::new(source) })?;
        identity::check_instance(&spec, facts)
            .map_err(|source| OrderError::Instance { device: device.clone(), source: Box::new(source) })?;
        let parameters = self.render_parameters(device, &spec, facts).await?;
        let order = Order { driver: reached, parameters, machine: facts.machine.clone(), act, within };
        let instance = identity::named_instance(&spec, facts).map(str::to_owned);
        Ok(ReadyDevice { driver, check, instance, transport: Transport::Order(order) })
    }

    async fn render_parameters(
        &self,
        device: &DeviceRef,
        spec: &FenceDeviceSpec,
        facts: &NodeFacts,
    ) -> Result<BTreeMap<String, Value>, OrderError> {
        let rendered = |parameter: &str, template: &str| {
            render(template, facts).map_err(|source| OrderError::Render {
                device: device.clone(),
                parameter: parameter.to_owned(),
                source: Box::new(source),
            })
        };
        let own = spec.node_parameters.get(&*facts.machine.node);
        let mut all = BTreeMap::new();
        for (parameter, template) in spec.parameters.iter().chain(own.into_iter().flatten()) {
            if is_secret_name(parameter) {
                let why = "everyone who may view FenceDevices can read it: put it into a Secret, and name that Secret in secretParameters";
                let (device, parameter) = (device.clone(), parameter.clone());
                return Err(OrderError::Secret { device, parameter, why: why.to_owned() });
            }
            let value = rendered(parameter, template)?;
            hosts::check_host(spec, parameter, template, &value).map_err(|source| OrderError::Host {
                device: device.clone(),
                parameter: parameter.clone(),
                source,
            })?;
            all.insert(parameter.clone(), Value::Plain(value));
        }
        for SecretParameter { parameter, secret, key } in &spec.secret_parameters {
            let name = rendered(parameter, secret)?;
            let value = self.read_secret(device, parameter, &name, key).await?;
            all.insert(parameter.clone(), Value::Secret(value));
        }
        Ok(all)
    }

    async fn read_secret(
        &self,
        device: &DeviceRef,
        parameter: &str,
        name: &str,
        key: &str,
    ) -> Result<Secret, OrderError> {
        let wrong = |why: String| OrderError::Secret { device: device.clone(), parameter: parameter.to_owned(), why };
        if !is_kubernetes_name(name) {
            return Err(wrong(format!("{name:?} is not a valid name of a Secret")));
        }
        let path = format!("/api/v1/namespaces/{}/secrets/{name}", device.namespace);
        let read = match read_secret(self.connection, &path).await {
            Ok(read) => read,
            Err(error) if error.is_not_found() => {
                return Err(wrong(format!("Secret {}/{name} does not exist", device.namespace)));
            }
            Err(source) => {
                return Err(OrderError::Read { device: device.clone(), source: Box::new(source) });
            }
        };
        // The message of a decoding error could quote the Secret.
        let secret: SecretObject<'_> = serde_json::from_slice(&read)
            .map_err(|_could_quote_it| wrong(format!("Secret {name} cannot be decoded")))?;
        if !consents(&secret, &device.name) {
            let DeviceRef { namespace, name: device } = device;
            return Err(wrong(format!(
                "Secret {namespace}/{name} does not allow FenceDevice {device} to use it. If it is meant to: kubectl annotate secret {name} -n {namespace} --overwrite {CONSENT}={device}"
            )));
        }
        let value = secret.data.unwrap_or_default().remove(key);
        let value = value.ok_or_else(|| wrong(format!("Secret {name} has no key {key:?}")))?;
        let unreadable = || wrong(format!("key {key:?} of Secret {name} is not UTF-8 in base64"));
        let ByteString(bytes) = serde_json::from_str(value.get()).map_err(|_could_quote_it| unreadable())?;
        let bytes = Zeroizing::new(bytes);
        let text = std::str::from_utf8(&bytes).map_err(|_could_quote_it| unreadable())?;
        Ok(Secret::new(text.to_owned()))
    }
}

/// The path of a device whose namespace and name are valid.
pub fn device_path(device: &DeviceRef) -> String {
    let DeviceRef { namespace, name } = device;
    group_path(&format!("namespaces/{namespace}/fencedevices/{name}"))
}

/// How many bytes of the devices' answers to one attempt are kept.
pub(super) const MAX_OUTCOME_BYTES: usize = 2_048;

/// The answer of a device to `off` or `on`, in one line.
pub(super) fn describe_answer(device: &DeviceRef, answer: &Result<Answer, DeviceError>) -> String {
    match answer {
        Ok(Answer { said, .. }) if said.is_empty() => format!("{device}: answered"),
        Ok(Answer { said, .. }) => format!("{device}: {said}"),
        Err(error) => format!("{device}: {error}"),
    }
}
