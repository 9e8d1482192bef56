//! Renders the templates of a device's spec for one node. Pure.
//!
//! Danger note: a kubelet writes its own labels, its systemUUID and, when it registers, its providerID. None of them
//! may become a host to which a password is sent, another machine's plug, or a line in a shell.

use std::collections::BTreeMap;

use super::instance::{self, InstanceError, PARTS};
use crate::api::{Incarnation, PROTECTED, is_protected};
use crate::transport::Machine;

/// What templates may use of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeFacts {
    pub(super) machine: Machine,
    /// `None`: the Node object is gone, so its labels are unknown.
    pub(super) labels: Option<BTreeMap<String, String>>,
    /// The UID of its Node; empty: the Node is gone.
    pub(super) uid: String,
    /// The incarnation in question; only its name is set: any incarnation.
    pub(super) incarnation: Incarnation,
}

impl NodeFacts {
    /// The facts of a node whose object is gone.
    pub(super) fn for_missing_node(node: &Incarnation) -> Self {
        let machine = Machine { node: node.name.as_str().into(), ..Machine::default() };
        Self { machine, labels: None, uid: String::new(), incarnation: node.clone() }
    }
}

/// Why a text cannot be rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RenderError {
    #[error("the template {template:?} has a {{{{ without }}}}")]
    Open { template: String },
    #[error(
        "the template {template:?} uses {what:?}, which is unknown. Known are .Node.Name, .Node.ProviderID, .Node.SystemUUID, .Node.Label \"key\", and {PARTS}"
    )]
    Unknown { template: String, what: String },
    #[error("the template {template:?} uses {what}, which node {node} does not have")]
    Missing { template: String, what: String, node: String },
    #[error(
        "the template {template:?} uses the label {key:?}, which any kubelet may set. Use a label below {PROTECTED}/, which kubelets may not set"
    )]
    Unprotected { template: String, key: String },
    #[error(
        "the template {template:?} uses {what}, and that of node {node} is not one word of at most {WORD_MOST} letters, digits and . _ : / -"
    )]
    NoWord { template: String, what: String, node: String },
    #[error("the template {template:?} uses a part of the node's instance")]
    Instance { template: String, source: InstanceError },
}

/// The maximum of a host name and of a label.
const WORD_MOST: usize = 253;

/// No character of such a value has a meaning in a shell, a URL's authority or a device's command line.
fn is_word(value: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/-".contains(&byte);
    value.len() <= WORD_MOST && value.bytes().all(allowed)
}

/// The placeholders of a template.
pub(super) fn placeholders(template: &str) -> impl Iterator<Item = &str> {
    template.split("{{").skip(1).filter_map(|part| Some(part.split_once("}}")?.0.trim()))
}

/// Replaces the placeholders in double braces by facts of the node.
pub(super) fn render(template: &str, facts: &NodeFacts) -> Result<String, RenderError> {
    let (mut out, mut rest) = (String::new(), template);
    while let Some((before, after)) = rest.split_once("{{") {
        let open = || RenderError::Open { template: template.to_owned() };
        let (inner, behind) = after.split_once("}}").ok_or_else(open)?;
        out.push_str(before);
        out.push_str(lookup(inner.trim(), template, facts)?);
        rest = behind;
    }
    out.push_str(rest);
    Ok(out)
}

fn lookup<'a>(what: &str, template: &str, facts: &'a NodeFacts) -> Result<&'a str, RenderError> {
    let NodeFacts { machine, labels, .. } = facts;
    let unknown = || RenderError::Unknown { template: template.to_owned(), what: what.to_owned() };
    let value = match what {
        ".Node.Name" => Some(&*machine.node),
        ".Node.ProviderID" => Some(&*machine.provider_id),
        ".Node.SystemUUID" => Some(&*machine.system_uuid),
        _ if instance::is_part(what) => {
            let wrong = |source| RenderError::Instance { template: template.to_owned(), source };
            let part = instance::lookup_part(what, &machine.provider_id, &machine.node).map_err(wrong)?;
            Some(part.ok_or_else(unknown)?)
        }
        _ => {
            let key = what.strip_prefix(".Node.Label").ok_or_else(unknown)?.trim();
            let key = key.strip_prefix('"').and_then(|key| key.strip_suffix('"')).ok_or_else(unknown)?;
            if !is_protected(key) {
                let (template, key) = (template.to_owned(), key.to_owned());
                return Err(RenderError::Unprotected { template, key });
            }
            labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str)
        }
    };
    let (template, what, node) = (template.to_owned(), what.to_owned(), machine.node.to_string());
    match value.filter(|value| !value.is_empty()) {
        None => Err(RenderError::Missing { template, what, node }),
        Some(value) if !is_word(value) => Err(RenderError::NoWord { template, what, node }),
        Some(value) => Ok(value),
    }
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    const RACK: &str = "node-restriction.kubernetes.io/rack";

    fn facts() -> NodeFacts {
        NodeFacts {
            machine: Machine { node: "w1".into(), system_uuid: "4c4c4544".into(), provider_id: Default::default() },
            labels: Some([(RACK.to_owned(), "7".to_owned())].into()),
            uid: "uid-w1".to_owned(),
            incarnation: Incarnation::default(),
        }
    }

    #[test]
    fn names_and_labels_are_put_in() {
        for (template, expected) in [
            ("plain", "plain"),
            ("bmc-{{.Node.Name}}.example", "bmc-w1.example"),
            ("{{ .Node.Label \"node-restriction.kubernetes.io/rack\" }}/{{.Node.SystemUUID}}", "7/4c4c4544"),
            ("}} {", "}} {"),
        ] {
            assert_eq!(render(template, &facts()).as_deref(), Ok(expected), "{template}");
        }
    }

    #[test]
    fn a_missing_value_is_an_error_that_names_the_placeholder() {
        for (template, part) in [
            ("{{.Node.Name", "without"),
            ("{{.Node.Nmae}}", ".Node.Nmae"),
            ("{{.Node.Label rack}}", ".Node.Label rack"),
            ("{{.Node.Label \"node-restriction.kubernetes.io/row\"}}", "does not have"),
            ("{{.Node.ProviderID}}", "does not have"),
        ] {
            let error = render(template, &facts()).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("{{.Node"), "{error}");
        }
        let gone = NodeFacts::for_missing_node(&Incarnation { name: "w1".to_owned(), ..Incarnation::default() });
        assert_eq!(render("{{.Node.Name}}", &gone).as_deref(), Ok("w1"));
        assert!(
            render("{{.Node.Label \"node-restriction.kubernetes.io/rack\"}}", &gone).is_err(),
            "nobody knows the labels of a node that is gone"
        );
    }

    /// A kubelet-settable label in a template sent the password of the node's device to a host of the node's choice.
    #[test]
    fn attack_a_label_that_a_kubelet_may_set_is_not_rendered() {
        let mut facts = facts();
        for (key, protected) in [
            ("bmc", false),
            ("kubernetes.io/hostname", false),
            ("evil-node-restriction.kubernetes.io/bmc", false),
            ("node-restriction.kubernetes.io", false),
            ("node-restriction.kubernetes.io.example/bmc", false),
            ("node-restriction.kubernetes.io/bmc", true),
            ("dc.node-restriction.kubernetes.io/bmc", true),
        ] {
            facts.labels.as_mut().unwrap().insert(key.to_owned(), "attacker".to_owned());
            let rendered = render(&format!("{{{{.Node.Label \"{key}\"}}}}"), &facts);
            assert_eq!(rendered.is_ok(), protected, "{key}: {rendered:?}");
            if !protected {
                assert!(rendered.unwrap_err().to_string().contains("below node-restriction.kubernetes.io/"), "{key}");
            }
        }
    }

    /// `virsh domstate x; touch pwned` was executed on a hypervisor.
    #[test]
    fn attack_a_value_from_a_node_must_be_one_word() {
        let long = "a".repeat(254);
        let evil =
            ["x; reboot", "$(id)", "a b", "a\nb", "a@evil.example", "evil?", "#", "a\u{202e}b", "é", "'", "%2f", &long];
        for value in evil {
            let mut facts = facts();
            facts.machine.system_uuid = value.into();
            facts.machine.provider_id = value.into();
            facts.labels.as_mut().unwrap().insert(RACK.to_owned(), value.to_owned());
            for what in [".Node.SystemUUID", ".Node.ProviderID", ".Node.Label \"node-restriction.kubernetes.io/rack\""]
            {
                let error = render(&format!("plug-{{{{{what}}}}}"), &facts).unwrap_err().to_string();
                assert!(error.contains("is not one word") && !error.contains(value), "{error}");
            }
        }
        let mut facts = facts();
        facts.machine.provider_id = "aws:///eu-central-1a/i-0abc".into();
        assert_eq!(render("{{.Node.ProviderID}}", &facts).as_deref(), Ok("aws:///eu-central-1a/i-0abc"));
    }
}
