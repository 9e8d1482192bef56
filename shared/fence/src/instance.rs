//! Which instance of which cloud a Node is, by its `spec.providerID`. Pure.
//!
//! The table is closed: a form that is not in it names no instance. So one FenceDevice serves a whole cloud, and its
//! templates can name nothing but an instance.
//!
//! Danger note: a kubelet may write the providerID when it registers. Each part has a strict form here: none of them
//! is a host, a path or more than one word. `identity` prevents that a node uses the providerID of another.

use crate::transport::MachineUuid;

/// The parts of a providerID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Instance<'a> {
    id: &'a str,
    zone: Option<&'a str>,
    region: Option<&'a str>,
    project: Option<&'a str>,
    subscription: Option<&'a str>,
    resource_group: Option<&'a str>,
}

/// A cloud, a hypervisor, or another provider of machines.
struct Provider {
    /// What a providerID begins with, before `://`. The sources are the cloud controller managers that write it.
    scheme: &'static str,
    /// The fence agents that switch its instances, and no others.
    agents: &'static [&'static str],
    /// The parameters that must be these parts, and nothing else, so that the agent's answer is about this instance.
    /// Empty: the agent's answer does not count as the provider's. A hypervisor's agent reports a machine off that is
    /// suspended or moved; the VM numbers of two Proxmox clusters are the same.
    named_by: &'static [(&'static str, &'static str)],
    /// Parses what follows `://`.
    read: fn(&str) -> Option<Instance<'_>>,
}

const PROVIDERS: [Provider; 9] = [
    Provider { scheme: "aws", agents: &["fence_aws"], named_by: &[("plug", ".Instance.ID")], read: aws },
    Provider {
        scheme: "azure",
        agents: &["fence_azure_arm"],
        named_by: &[
            ("plug", ".Instance.ID"),
            ("resourceGroup", ".Instance.ResourceGroup"),
            ("subscriptionId", ".Instance.Subscription"),
        ],
        read: azure,
    },
    Provider {
        scheme: "gce",
        agents: &["fence_gce"],
        named_by: &[("plug", ".Instance.ID"), ("zone", ".Instance.Zone"), ("project", ".Instance.Project")],
        read: gce,
    },
    Provider { scheme: "hcloud", agents: &[], named_by: &[], read: hcloud },
    Provider { scheme: "kubevirt", agents: &["fence_kubevirt"], named_by: &[], read: kubevirt },
    Provider { scheme: "libvirt", agents: &["fence_virsh"], named_by: &[], read: libvirt },
    Provider {
        scheme: "openstack",
        agents: &["fence_openstack"],
        named_by: &[("plug", ".Instance.ID")],
        read: openstack,
    },
    Provider { scheme: "proxmox", agents: &["fence_pve"], named_by: &[], read: proxmox },
    Provider { scheme: "vsphere", agents: &["fence_vmware_soap"], named_by: &[], read: vsphere },
];

/// Whether this agent queries a cloud, whose replicas may lag.
#[must_use]
pub fn is_provider_agent(agent: &str) -> bool {
    PROVIDERS.iter().any(|provider| !provider.named_by.is_empty() && provider.agents.contains(&agent))
}

/// The parts of an instance, as templates name them.
pub(super) const PARTS: &str =
    ".Instance.ID, .Zone, .Region, .Project, .Subscription and .ResourceGroup (of .Node.ProviderID)";

/// Whether this placeholder names a part of an instance.
pub(super) fn is_part(what: &str) -> bool {
    what.starts_with(".Instance.")
}

/// Why a node is no instance that the device can switch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InstanceError {
    #[error(
        "spec.providerID of node {node} names no instance. Known forms begin with {}. Set the parameters of this node in nodeParameters",
        schemes()
    )]
    Form { node: String },
    #[error(
        "node {node} is an instance of {scheme}, and {agent} switches instances of {of}: exclude the node by nodeSelector, or use another device"
    )]
    OfAnother { node: String, scheme: &'static str, agent: String, of: &'static str },
}

fn schemes() -> String {
    let all: Vec<_> = PROVIDERS.iter().map(|provider| format!("{}://", provider.scheme)).collect();
    all.join(", ")
}

fn provider_of(provider_id: &str) -> Option<(&'static Provider, Instance<'_>)> {
    let (scheme, rest) = provider_id.split_once("://")?;
    let provider = PROVIDERS.iter().find(|provider| provider.scheme == scheme)?;
    Some((provider, (provider.read)(rest)?))
}

/// The part that a placeholder names. `Ok(None)`: there is no such part. `Ok(Some(""))`: these instances do not have
/// it.
pub(super) fn lookup_part<'a>(what: &str, provider_id: &'a str, node: &str) -> Result<Option<&'a str>, InstanceError> {
    let form = || InstanceError::Form { node: node.to_owned() };
    let (_, instance) = provider_of(provider_id).ok_or_else(form)?;
    let part = match what.strip_prefix(".Instance.") {
        Some("ID") => Some(instance.id),
        Some("Zone") => instance.zone,
        Some("Region") => instance.region,
        Some("Project") => instance.project,
        Some("Subscription") => instance.subscription,
        Some("ResourceGroup") => instance.resource_group,
        _ => return Ok(None),
    };
    Ok(Some(part.unwrap_or_default()))
}

/// Whether an agent may switch a node by a part of its instance: never an instance of another provider, which could
/// have the same name there. Agents that are in no row do not switch instances of a cloud.
pub(super) fn check_provider(agent: &str, provider_id: &str, node: &str) -> Result<(), InstanceError> {
    let Some(own) = PROVIDERS.iter().find(|provider| provider.agents.contains(&agent)) else { return Ok(()) };
    let form = || InstanceError::Form { node: node.to_owned() };
    let (provider, _) = provider_of(provider_id).ok_or_else(form)?;
    if provider.scheme == own.scheme {
        return Ok(());
    }
    let (node, agent) = (node.to_owned(), agent.to_owned());
    Err(InstanceError::OfAnother { node, scheme: provider.scheme, agent, of: own.scheme })
}

/// The instance that an agent queries, if all parameters that name it are parts of this providerID and nothing else.
/// `template`: returns the template of a parameter.
pub(super) fn named_instance<'a, 't>(
    agent: &str,
    provider_id: &'a str,
    template: impl Fn(&str) -> Option<&'t str>,
) -> Option<&'a str> {
    let (provider, instance) = provider_of(provider_id)?;
    let is_part = |(parameter, part): &(&str, &str)| {
        let inner = template(parameter).and_then(|text| text.trim().strip_prefix("{{")?.strip_suffix("}}"));
        inner.map(str::trim) == Some(part)
    };
    let named = !provider.named_by.is_empty() && provider.named_by.iter().all(is_part);
    (named && provider.agents.contains(&agent)).then_some(instance.id)
}

/// A word of at most `most` letters, digits and these marks that begins with a letter or digit.
fn is_name(text: &str, marks: &str, most: usize) -> bool {
    text.len() <= most
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.chars().all(|one| one.is_ascii_alphanumeric() || marks.contains(one))
}

/// A DNS label, without dots: never a host outside the provider.
fn is_label(text: &str) -> bool {
    is_name(text, "-", 63) && !text.contains(|one: char| one.is_ascii_uppercase())
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.len() <= 20 && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn uuid(text: &str) -> Option<&str> {
    (MachineUuid::parse(text).is_some() && is_name(text, "-", 36)).then_some(text)
}

/// `aws:///eu-central-1a/i-0123456789abcdef0` (cloud-provider-aws).
fn aws(rest: &str) -> Option<Instance<'_>> {
    let (zone, id) = rest.strip_prefix('/')?.split_once('/')?;
    let hex = id.strip_prefix("i-")?;
    let is_id = matches!(hex.len(), 8 | 17) && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_id && is_label(zone)).then_some(())?;
    Some(Instance { id, zone: Some(zone), region: Some(region_of_aws(zone)?), ..Instance::default() })
}

/// A region ends with its first number: `eu-central-1` of `eu-central-1a`, `us-west-2` of `us-west-2-lax-1a`.
fn region_of_aws(zone: &str) -> Option<&str> {
    let number = zone.find(|one: char| one.is_ascii_digit())?;
    let digits = zone.get(number..)?.find(|one: char| !one.is_ascii_digit())?;
    zone.get(..number + digits).filter(|region| region.contains('-'))
}

/// `gce://project/europe-west1-b/name` (cloud-provider-gcp). A project may be `example.com:name`.
fn gce(rest: &str) -> Option<Instance<'_>> {
    let mut parts = rest.split('/');
    let [project, zone, id] = [parts.next()?, parts.next()?, parts.next()?];
    let (region, _) = zone.rsplit_once('-')?;
    let is_form = parts.next().is_none() && is_name(project, ".:-", 100) && is_label(zone) && is_label(id);
    let instance =
        Instance { id, zone: Some(zone), region: Some(region), project: Some(project), ..Instance::default() };
    is_form.then_some(instance)
}

/// `azure:///subscriptions/UUID/resourceGroups/NAME/providers/Microsoft.Compute/virtualMachines/NAME` (cloud-provider-azure),
/// which writes it in lower case at times. Instances of a scale set have a longer form: fence_azure_arm cannot switch them.
fn azure(rest: &str) -> Option<Instance<'_>> {
    let parts: Vec<_> = rest.split('/').collect();
    let ["", subscriptions, subscription, groups, group, providers, compute, machines, id] = *parts else {
        return None;
    };
    let keys = [
        (subscriptions, "subscriptions"),
        (groups, "resourceGroups"),
        (providers, "providers"),
        (compute, "Microsoft.Compute"),
        (machines, "virtualMachines"),
    ];
    let is_form = keys.iter().all(|(part, key)| part.eq_ignore_ascii_case(key));
    (is_form && is_name(group, "._-", 90) && is_name(id, "._-", 64)).then_some(())?;
    let (subscription, resource_group) = (Some(uuid(subscription)?), Some(group));
    Some(Instance { id, subscription, resource_group, ..Instance::default() })
}

/// `hcloud://42` (hcloud-cloud-controller-manager). A dedicated server has `hrobot://`, which is no instance.
fn hcloud(rest: &str) -> Option<Instance<'_>> {
    is_number(rest).then_some(Instance { id: rest, ..Instance::default() })
}

/// `kubevirt://name` (cloud-provider-kubevirt).
fn kubevirt(rest: &str) -> Option<Instance<'_>> {
    crate::model::is_kubernetes_name(rest).then_some(Instance { id: rest, ..Instance::default() })
}

/// `libvirt:///UUID`.
fn libvirt(rest: &str) -> Option<Instance<'_>> {
    Some(Instance { id: uuid(rest.strip_prefix('/')?)?, ..Instance::default() })
}

/// `openstack:///UUID`, and `openstack://region/UUID` where several regions are one cluster (cloud-provider-openstack).
fn openstack(rest: &str) -> Option<Instance<'_>> {
    let (region, id) = rest.split_once('/')?;
    let region = (!region.is_empty()).then_some(region);
    region.is_none_or(|region| is_name(region, "_-", 63)).then_some(())?;
    Some(Instance { id: uuid(id)?, region, ..Instance::default() })
}

/// `proxmox://region/100` (proxmox-cloud-controller-manager). fence_pve does not accept the UUID that
/// cluster-api-provider-proxmox writes.
fn proxmox(rest: &str) -> Option<Instance<'_>> {
    let (region, id) = rest.split_once('/')?;
    let instance = Instance { id, region: Some(region), ..Instance::default() };
    (is_name(region, "_-", 63) && is_number(id)).then_some(instance)
}

/// `vsphere://UUID` (cloud-provider-vsphere). fence_vmware_rest identifies machines by name alone.
fn vsphere(rest: &str) -> Option<Instance<'_>> {
    Some(Instance { id: uuid(rest)?, ..Instance::default() })
}

#[cfg(test)]
mod tests;
