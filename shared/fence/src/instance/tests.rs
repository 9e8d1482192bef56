use super::*;

const UUID: &str = "4c4c4544-0037-4a10-8053-b4c04f4d3432";

fn parts(provider_id: &str) -> Option<[&str; 6]> {
    let names = ["ID", "Zone", "Region", "Project", "Subscription", "ResourceGroup"];
    let of = |name| lookup_part(&format!(".Instance.{name}"), provider_id, "w1").ok().flatten();
    let parts = names.map(of);
    parts[0]?;
    Some(parts.map(Option::unwrap_or_default))
}

/// As the cloud controller manager of each provider writes them.
#[test]
fn the_provider_id_of_each_provider_is_parsed() {
    let azure = format!(
        "azure:///subscriptions/{UUID}/resourceGroups/MC_shop/providers/Microsoft.Compute/virtualMachines/aks-1"
    );
    for (provider_id, expected) in [
        (
            "aws:///eu-central-1a/i-0123456789abcdef0",
            ["i-0123456789abcdef0", "eu-central-1a", "eu-central-1", "", "", ""],
        ),
        ("aws:///us-west-2-lax-1a/i-01234567", ["i-01234567", "us-west-2-lax-1a", "us-west-2", "", "", ""]),
        ("aws:///us-gov-west-1b/i-01234567", ["i-01234567", "us-gov-west-1b", "us-gov-west-1", "", "", ""]),
        ("gce://shop-prod/europe-west1-b/gke-a-1", ["gke-a-1", "europe-west1-b", "europe-west1", "shop-prod", "", ""]),
        ("gce://example.com:shop/us-east1-c/n1", ["n1", "us-east1-c", "us-east1", "example.com:shop", "", ""]),
        (&azure, ["aks-1", "", "", "", UUID, "MC_shop"]),
        (&azure.to_ascii_lowercase(), ["aks-1", "", "", "", UUID, "mc_shop"]),
        ("hcloud://4711", ["4711", "", "", "", "", ""]),
        ("kubevirt://shop-worker-1", ["shop-worker-1", "", "", "", "", ""]),
        (&format!("libvirt:///{UUID}"), [UUID, "", "", "", "", ""]),
        (&format!("openstack:///{UUID}"), [UUID, "", "", "", "", ""]),
        (&format!("openstack://RegionOne/{UUID}"), [UUID, "", "RegionOne", "", "", ""]),
        ("proxmox://cluster-1/100", ["100", "", "cluster-1", "", "", ""]),
        (&format!("vsphere://{UUID}"), [UUID, "", "", "", "", ""]),
    ] {
        assert_eq!(parts(provider_id), Some(expected), "{provider_id}");
    }
}

/// A kubelet may write its providerID when it registers.
#[test]
fn attack_a_malformed_provider_id_names_no_instance() {
    let scale_set = format!(
        "azure:///subscriptions/{UUID}/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/s/virtualMachines/0"
    );
    for provider_id in [
        "",
        "i-0123456789abcdef0",
        "aws://",
        "aws:///eu-central-1a/",
        "aws:///eu-central-1a/i-0123456789abcdef0/x",
        "aws:///eu-central-1a/i-0123456789abcdeg0",
        "aws:///eu-central-1a/i-0123456789abcdef0,i-0fedcba9876543210",
        "aws:///attacker.example/i-0123456789abcdef0",
        "aws:///1a/i-0123456789abcdef0",
        "aws:///eu-central/i-0123456789abcdef0",
        "aws:///EU-central-1a/i-0123456789abcdef0",
        "AWS:///eu-central-1a/i-0123456789abcdef0",
        "aws://eu-central-1a/i-0123456789abcdef0",
        "gce://p/europe-west1-b/n/x",
        "gce://p/../n",
        "gce://p/europe/n",
        "gce://-p/europe-west1-b/n",
        "gce://p/europe-west1-b/n.attacker.example",
        "azure:///subscriptions/x/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/n",
        &scale_set,
        "hcloud://",
        "hcloud://1e3",
        "hcloud://٣",
        "hrobot://42",
        "kubevirt://a/b",
        "openstack:///not-a-uuid",
        "proxmox:///100",
        &format!("proxmox://{UUID}"),
        &format!("vsphere:// {UUID}"),
        &format!("vsphere://VMware-{UUID}"),
        "vsphere://é",
        "unknown://x",
    ] {
        assert_eq!(parts(provider_id), None, "{provider_id}");
        let error = lookup_part(".Instance.ID", provider_id, "w1").unwrap_err().to_string();
        let helps = error.contains("node w1") && error.contains("aws://") && error.contains("nodeParameters");
        assert!(helps && !error.contains("attacker"), "{error}");
    }
}

/// One FenceDevice without a nodeSelector, and nodes of two clouds: the name of one is that of a machine of the
/// other.
#[test]
fn attack_an_agent_switches_instances_of_its_own_provider_alone() {
    let (gce, proxmox) = ("gce://p/europe-west1-b/n1", "proxmox://cluster-1/100");
    for (agent, provider_id, fine) in [
        ("fence_gce", gce, true),
        ("fence_pve", proxmox, true),
        ("fence_kubevirt", gce, false),
        ("fence_gce", proxmox, false),
        ("fence_gce", "", false),
        ("fence_gce", "gce://", false),
        ("fence_dummy", gce, true),
        ("fence_dummy", "", true),
    ] {
        let result = check_provider(agent, provider_id, "w1");
        assert_eq!(result.is_ok(), fine, "{agent} {provider_id}: {result:?}");
    }
    let error = check_provider("fence_gce", proxmox, "w1").unwrap_err().to_string();
    for expected in ["node w1", "instance of proxmox", "fence_gce switches instances of gce", "nodeSelector"] {
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn the_table_has_each_scheme_and_each_agent_once() {
    let mut schemes: Vec<_> = PROVIDERS.iter().map(|provider| provider.scheme).collect();
    assert!(schemes.is_sorted(), "{schemes:?}");
    schemes.dedup();
    assert_eq!(schemes.len(), PROVIDERS.len());
    let mut agents: Vec<_> = PROVIDERS.iter().flat_map(|provider| provider.agents).collect();
    let all = agents.len();
    agents.sort_unstable();
    agents.dedup();
    assert_eq!(agents.len(), all);
}

/// The report of a device counts as that of a provider about this instance only if nothing but the providerID names
/// it.
#[test]
fn attack_an_instance_is_named_by_nothing_but_its_provider_id() {
    const AWS: &str = "aws:///eu-central-1a/i-0123456789abcdef0";
    const GCE: &str = "gce://shop/europe-west1-b/w1";
    type Row =
        (&'static str, &'static str, &'static str, &'static [(&'static str, &'static str)], Option<&'static str>);
    let rows: [Row; 10] = [
        ("by its id", "fence_aws", AWS, &[("plug", "{{.Instance.ID}}")], Some("i-0123456789abcdef0")),
        ("with blanks", "fence_aws", AWS, &[("plug", " {{ .Instance.ID }} ")], Some("i-0123456789abcdef0")),
        ("by hand", "fence_aws", AWS, &[("plug", "i-0123456789abcdef0")], None),
        ("with more", "fence_aws", AWS, &[("plug", "{{.Instance.ID}}0")], None),
        ("by another part", "fence_aws", AWS, &[("plug", "{{.Instance.Zone}}")], None),
        ("not at all", "fence_aws", AWS, &[], None),
        ("an agent of another provider", "fence_gce", AWS, &[("plug", "{{.Instance.ID}}")], None),
        ("a name of any zone", "fence_gce", GCE, &[("plug", "{{.Instance.ID}}"), ("zone", "europe-west1-b")], None),
        (
            "a name of its zone and project",
            "fence_gce",
            GCE,
            &[("plug", "{{.Instance.ID}}"), ("zone", "{{.Instance.Zone}}"), ("project", "{{.Instance.Project}}")],
            Some("w1"),
        ),
        ("a number of any cluster", "fence_pve", "proxmox://a/100", &[("plug", "{{.Instance.ID}}")], None),
    ];
    for (what, agent, provider_id, templates, expected) in rows {
        let template = |name: &str| templates.iter().find(|(of, _)| *of == name).map(|(_, text)| *text);
        assert_eq!(named_instance(agent, provider_id, template), expected, "{what}");
    }
}
