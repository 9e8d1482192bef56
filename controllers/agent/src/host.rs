//! The node, the boot and the kind of this machine.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use pod_safety_watchdog::record::{Boot, Class};
use serde_json::Value;

/// Public clouds, as the firmware names them: `sys_vendor`, `product_name` or `chassis_asset_tag` (cloud-init,
/// `tools/ds-identify`).
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

/// The class of the machine: an x86 processor under a hypervisor has a flag, and the firmware has a vendor.
#[must_use]
pub fn class(proc: &Path, sys: &Path) -> Class {
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let dmi = |file: &str| read(&sys.join("class/dmi/id").join(file));
    let texts = ["sys_vendor", "product_name", "chassis_asset_tag"].map(dmi);
    let named = |names: &[&str]| names.iter().any(|name| texts.iter().any(|text| text.contains(name)));
    let processors = read(&proc.join("cpuinfo"));
    let flags: Vec<&str> = processors.lines().filter(|line| line.starts_with("flags")).collect();
    let flagged = flags.iter().any(|line| line.split_ascii_whitespace().any(|flag| flag == "hypervisor"));
    // EC2 on Xen: the UUID begins with ec2 (Amazon, "Identify EC2 instances"). Of random UUIDs one in 4,096 does, too.
    let is_xen = dmi("sys_vendor").trim() == "Xen";
    let is_ec2 = named(&["Amazon EC2"]) || is_xen && dmi("product_uuid").to_ascii_lowercase().starts_with("ec2");
    // A vendor of a cloud may sell notebooks, too; processors of other architectures do not show which it is.
    if is_ec2 || named(&CLOUDS) && (flagged || flags.is_empty()) {
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
            ("flags : fpu vme", "Dell Inc.", "PowerEdge R650", Class::Hardware),
            ("flags : fpu hypervisor", "QEMU", "Standard PC", Class::Virtual),
            ("flags : fpu hypervisor", "Dell Inc.", "", Class::Virtual),
            ("flags : fpu hypervisor", "Google", "Google Compute Engine", Class::Cloud),
            ("flags : fpu hypervisor", "Microsoft Corporation", "Virtual Machine", Class::Cloud),
            ("flags : fpu", "Microsoft Corporation", "Surface Laptop", Class::Hardware),
            // No flag: a bare-metal instance.
            ("flags :", "Amazon EC2", "m7i.metal", Class::Cloud),
            // The processor of another architecture.
            ("Features : fp asimd", "QEMU", "KVM Virtual Machine", Class::Virtual),
            ("Features : fp asimd", "Red Hat", "OpenStack Compute", Class::Virtual),
            ("Features : fp asimd", "GIGABYTE", "R152-P30", Class::Hardware),
        ] {
            assert_eq!(
                class_of(flags, &[("sys_vendor", vendor), ("product_name", product)]),
                class,
                "{flags} {vendor}"
            );
        }
    }

    #[test]
    fn bug_clouds_on_arm64_and_those_known_by_another_file_counted_as_hardware_or_plain_virtual_machines() {
        for vendor in ["Google", "Microsoft Corporation", "Hetzner", "Alibaba Cloud"] {
            assert_eq!(class_of("Features : fp asimd", &[("sys_vendor", vendor)]), Class::Cloud, "{vendor}");
        }
        let (flags, tag) = ("flags : fpu hypervisor", "OracleCloud.com");
        assert_eq!(class_of(flags, &[("sys_vendor", "QEMU"), ("chassis_asset_tag", tag)]), Class::Cloud);
        for uuid in ["ec2f8b1c-0000-4000-8000-000000000000", "EC2F8B1C-0000-4000-8000-000000000000"] {
            for (vendor, flags, class) in [
                ("Xen", flags, Class::Cloud),
                ("QEMU", flags, Class::Virtual),
                ("Dell Inc.", "flags : fpu", Class::Hardware),
            ] {
                assert_eq!(class_of(flags, &[("sys_vendor", vendor), ("product_uuid", uuid)]), class, "{vendor}");
            }
        }
    }

    /// The class of a machine with this line about its processor and these files of its firmware.
    fn class_of(processor: &str, firmware: &[(&str, &str)]) -> Class {
        let root = tempfile::tempdir().unwrap();
        let dmi = root.path().join("class/dmi/id");
        fs::create_dir_all(&dmi).unwrap();
        fs::write(root.path().join("cpuinfo"), format!("processor : 0\n{processor}\n")).unwrap();
        for (file, text) in firmware {
            fs::write(dmi.join(file), text).unwrap();
        }
        class(root.path(), root.path())
    }
}
