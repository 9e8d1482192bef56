//! What of a device's spec is meant for one node. Pure.

use std::collections::BTreeMap;

use crate::api::Incarnation;
use crate::transport::Machine;

/// What templates may ask of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) machine: Machine,
    /// `None`: the Node object is gone, and nobody knows them.
    pub(super) labels: Option<BTreeMap<String, String>>,
}

impl Facts {
    /// Of a node whose object is gone.
    pub(super) fn of_gone(node: &Incarnation) -> Self {
        Self { machine: Machine { node: node.name.as_str().into(), ..Machine::default() }, labels: None }
    }
}

/// Why a text cannot be rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RenderError {
    #[error("the template {template:?} has a {{{{ without }}}}")]
    Open { template: String },
    #[error(
        "the template {template:?} asks for {what:?}; there are .Node.Name, .Node.ProviderID, .Node.SystemUUID and .Node.Label \"key\""
    )]
    Unknown { template: String, what: String },
    #[error("the template {template:?} asks for {what}, which node {node} does not have")]
    Missing { template: String, what: String, node: String },
}

/// Puts what a node is in place of what stands in double braces.
pub(super) fn render(template: &str, facts: &Facts) -> Result<String, RenderError> {
    let (mut out, mut rest) = (String::new(), template);
    while let Some((before, after)) = rest.split_once("{{") {
        let open = || RenderError::Open { template: template.to_owned() };
        let (inner, behind) = after.split_once("}}").ok_or_else(open)?;
        out.push_str(before);
        out.push_str(value(inner.trim(), template, facts)?);
        rest = behind;
    }
    out.push_str(rest);
    Ok(out)
}

fn value<'a>(what: &str, template: &str, facts: &'a Facts) -> Result<&'a str, RenderError> {
    let Facts { machine, labels } = facts;
    let found = match what {
        ".Node.Name" => Some(&*machine.node),
        ".Node.ProviderID" => Some(&*machine.provider_id),
        ".Node.SystemUUID" => Some(&*machine.system_uuid),
        _ => {
            let unknown = || RenderError::Unknown { template: template.to_owned(), what: what.to_owned() };
            let key = what.strip_prefix(".Node.Label").ok_or_else(unknown)?.trim();
            let key = key.strip_prefix('"').and_then(|key| key.strip_suffix('"')).ok_or_else(unknown)?;
            labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str)
        }
    };
    found.filter(|found| !found.is_empty()).ok_or_else(|| RenderError::Missing {
        template: template.to_owned(),
        what: what.to_owned(),
        node: machine.node.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            machine: Machine {
                node: "w1".into(),
                system_uuid: "4c4c4544".into(),
                provider_id: Default::default(),
            },
            labels: Some([("rack".to_owned(), "7".to_owned())].into()),
        }
    }

    #[test]
    fn names_and_labels_are_put_in() {
        for (template, wanted) in [
            ("plain", "plain"),
            ("bmc-{{.Node.Name}}.example", "bmc-w1.example"),
            ("{{ .Node.Label \"rack\" }}/{{.Node.SystemUUID}}", "7/4c4c4544"),
            ("}} {", "}} {"),
        ] {
            assert_eq!(render(template, &facts()).as_deref(), Ok(wanted), "{template}");
        }
    }

    #[test]
    fn what_is_not_there_is_an_error_that_names_it() {
        for (template, word) in [
            ("{{.Node.Name", "without"),
            ("{{.Node.Nmae}}", ".Node.Nmae"),
            ("{{.Node.Label rack}}", ".Node.Label rack"),
            ("{{.Node.Label \"row\"}}", "does not have"),
            ("{{.Node.ProviderID}}", "does not have"),
        ] {
            let error = render(template, &facts()).unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("{{.Node"), "{error}");
        }
        let gone = Facts::of_gone(&Incarnation { name: "w1".to_owned(), ..Incarnation::default() });
        assert_eq!(render("{{.Node.Name}}", &gone).as_deref(), Ok("w1"));
        assert!(
            render("{{.Node.Label \"rack\"}}", &gone).is_err(),
            "nobody knows the labels of a node that is gone"
        );
    }
}
