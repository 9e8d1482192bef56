//! Fuzz target: templates of any form, and nodes with any content.

use pod_safety_fuzz::{Draw, fuzz};

use super::*;

const PIECES: &[&str] = &[
    "{{",
    "}}",
    "{",
    "}",
    "{{.Node.Name}}",
    "{{ .Node.ProviderID }}",
    "{{.Node.SystemUUID}}",
    "{{.Instance.ID}}",
    "{{.Instance.Region}}",
    ".Node.Label",
    " ",
    "\"",
    "{{.Node.Label \"node-restriction.kubernetes.io/rack\"}}",
    "{{.Node.Label \"bmc\"}}",
    "https://",
    ".example",
    "plug",
    "node-restriction.kubernetes.io/rack",
    "{{.Node.Name",
    "bmc",
    "{{{.Node.Name}}}",
];

const SAID: &[&str] =
    &["w1", "4c4c4544", "$(id)", "{{.Node.Name}}", "a@b", "aws:///eu-central-1a/i-0123456789abcdef0", " ", "x; y"];

const LABELS: &[&str] = &["node-restriction.kubernetes.io/rack", "bmc", "dc.node-restriction.kubernetes.io/row"];

fn facts(draw: &mut Draw<'_>) -> NodeFacts {
    let mut said = || draw.text(SAID);
    let machine = Machine {
        node: said().as_str().into(),
        provider_id: said().as_str().into(),
        system_uuid: said().as_str().into(),
    };
    let labels = LABELS.iter().map(|key| ((*key).to_owned(), said())).collect();
    NodeFacts {
        machine,
        labels: draw.once_in(2).then_some(labels),
        uid: String::new(),
        incarnation: Incarnation::default(),
    }
}

/// The value of the inner text of a pair of braces, computed by a second implementation.
fn meant<'a>(inner: &str, facts: &'a NodeFacts) -> Option<&'a str> {
    let text: &str = match inner.trim() {
        ".Node.Name" => &facts.machine.node,
        ".Node.ProviderID" => &facts.machine.provider_id,
        ".Node.SystemUUID" => &facts.machine.system_uuid,
        // The only providerID of a known form that a node has here.
        ".Instance.ID" => facts.machine.provider_id.strip_prefix("aws:///eu-central-1a/")?,
        ".Instance.Region" => facts.machine.provider_id.strip_prefix("aws:///")?.get(..12)?,
        label => {
            let quoted = label.strip_prefix(".Node.Label")?.trim();
            let key = quoted.get(1..quoted.len().checked_sub(1)?)?;
            let (domain, _) = key.split_once('/')?;
            let protected = format!(".{domain}").ends_with(".node-restriction.kubernetes.io");
            facts.labels.as_ref()?.get(key).filter(|_| protected)?
        }
    };
    let is_word = !text.is_empty()
        && text.len() <= 253
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | ':' | '/' | '-'));
    is_word.then_some(text)
}

/// An order contains the text between the placeholders, and values of a node only as one plain word.
#[test]
fn attack_a_rendered_value_of_a_node_is_one_word_or_an_error() {
    fuzz!(4_000, |draw| {
        let (template, facts) = (draw.text(PIECES), facts(draw));
        let Ok(rendered) = render(&template, &facts) else { return };
        let mut parts = template.split("{{");
        let mut expected = parts.next().unwrap().to_owned();
        for part in parts {
            let (inner, literal) = part.split_once("}}").unwrap_or_else(|| panic!("{template:?}"));
            expected += meant(inner, &facts).unwrap_or_else(|| panic!("{template:?} of {facts:?}"));
            expected += literal;
            assert!(placeholders(&template).any(|one| one == inner.trim()), "{template:?} uses {inner:?}");
        }
        assert_eq!(rendered, expected, "{template:?}");
    });
}
