//! The node, the boot and the kind of this machine.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use pod_safety_watchdog::record::{Boot, Class};
use serde_json::Value;

/// Vendors of public clouds, as the firmware names them.
const CLOUDS: [&str; 9] = [
    "Amazon EC2",
    "Google",
    "Microsoft Corporation",
    "Alibaba Cloud",
    "OracleCloud",
    "DigitalOcean",
    "Hetzner",
    "Vultr",
    "Tencent Cloud",
];
/// Hypervisors that a firmware names, where the processor shows no flag.
const HYPERVISORS: [&str; 7] = ["QEMU", "VMware", "Xen", "innotek GmbH", "Parallels", "OpenStack", "KubeVirt"];

/// The UID of the Node, as the API server wrote it into the token of this pod.
///
/// # Errors
/// The token has no such claim; with the remedy.
pub fn node_uid_from_token(token: &str) -> Result<Arc<str>, String> {
    let why = "the token names no node: this needs Kubernetes 1.32 or later, and a token that the kubelet mounts into this pod";
    let payload = token.trim().split('.').nth(1).ok_or(why)?;
    let bytes = URL_SAFE_NO_PAD.decode(payload).map_err(|_other| why)?;
    let claims: Value = serde_json::from_slice(&bytes).map_err(|_other| why)?;
    let uid = claims["kubernetes.io"]["node"]["uid"].as_str().filter(|uid| !uid.is_empty());
    Ok(uid.ok_or(why)?.into())
}

/// This boot of the node.
///
/// # Errors
/// The kernel does not show it.
pub fn boot(proc: &Path, node: Arc<str>) -> Result<Boot, String> {
    let path = proc.join("sys/kernel/random/boot_id");
    let id = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Boot { node, id: id.trim().into() })
}

/// The release of the kernel.
#[must_use]
pub fn kernel() -> Arc<str> {
    rustix::system::uname().release().to_string_lossy().into()
}

/// The class of the machine: a processor under a hypervisor has a flag, and the firmware has a vendor.
#[must_use]
pub fn class(proc: &Path, sys: &Path) -> Class {
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let vendor = read(&sys.join("class/dmi/id/sys_vendor"));
    let product = read(&sys.join("class/dmi/id/product_name"));
    let named = |names: &[&str]| names.iter().any(|name| vendor.contains(name) || product.contains(name));
    let flagged = read(&proc.join("cpuinfo"))
        .lines()
        .any(|line| line.starts_with("flags") && line.split_ascii_whitespace().any(|flag| flag == "hypervisor"));
    // A vendor of a cloud may sell notebooks, too.
    if flagged && named(&CLOUDS) || vendor.contains("Amazon EC2") {
        Class::Cloud
    } else if flagged || named(&HYPERVISORS) {
        Class::Virtual
    } else {
        Class::Hardware
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_uid_is_read_from_the_token() {
        let token = |claims: &str| format!("e30.{}.sig", URL_SAFE_NO_PAD.encode(claims));
        let named = token(r#"{"kubernetes.io":{"node":{"name":"a","uid":"7a1c"}}}"#);
        assert_eq!(node_uid_from_token(&named).as_deref(), Ok("7a1c"));
        for bad in ["", "x.y.z", &token("{}"), &token(r#"{"kubernetes.io":{"node":{"uid":""}}}"#)] {
            assert!(node_uid_from_token(bad).unwrap_err().contains("1.32"), "{bad}");
        }
    }

    #[test]
    fn a_machine_under_a_hypervisor_is_not_of_class_hardware() {
        for (flags, vendor, product, class) in [
            ("fpu vme", "Dell Inc.", "PowerEdge R650", Class::Hardware),
            ("fpu hypervisor", "QEMU", "Standard PC", Class::Virtual),
            ("fpu hypervisor", "Dell Inc.", "", Class::Virtual),
            ("fpu hypervisor", "Google", "Google Compute Engine", Class::Cloud),
            ("fpu hypervisor", "Microsoft Corporation", "Virtual Machine", Class::Cloud),
            ("fpu", "Microsoft Corporation", "Surface Laptop", Class::Hardware),
            // No flag: the processor of another architecture, or a bare-metal instance.
            ("", "QEMU", "KVM Virtual Machine", Class::Virtual),
            ("", "Amazon EC2", "m7g.metal", Class::Cloud),
        ] {
            let root = tempfile::tempdir().unwrap();
            let dmi = root.path().join("class/dmi/id");
            fs::create_dir_all(&dmi).unwrap();
            fs::write(root.path().join("cpuinfo"), format!("processor : 0\nflags : {flags}\n")).unwrap();
            fs::write(dmi.join("sys_vendor"), vendor).unwrap();
            fs::write(dmi.join("product_name"), product).unwrap();
            assert_eq!(super::class(root.path(), root.path()), class, "{flags} {vendor} {product}");
        }
    }
}
