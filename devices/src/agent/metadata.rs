//! An agent's own metadata: its parameters and actions.
//!
//! Invariants: an agent that cannot read the power of a machine is not used, since no effect of it could be verified.
//! An agent that cuts a node off from network or storage and leaves it running is not used either: its "off" is not
//! power.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use roxmltree::{Document, Node};

use super::find::{InstalledAgent, Version};
use super::parameters::{self, Kind};
use super::traps;

/// The metadata of agents that was read, by name and version.
#[derive(Default)]
pub(super) struct MetadataCache(Mutex<BTreeMap<String, (Version, Arc<Metadata>)>>);

impl MetadataCache {
    pub(super) fn get(&self, agent: &InstalledAgent) -> Option<Arc<Metadata>> {
        let entries = self.0.lock();
        let (version, metadata) = entries.get(&agent.name)?;
        (*version == agent.version).then(|| Arc::clone(metadata))
    }

    pub(super) fn put(&self, agent: &InstalledAgent, metadata: Arc<Metadata>) {
        self.0.lock().insert(agent.name.clone(), (agent.version, metadata));
    }
}

/// The metadata of an agent.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Metadata {
    pub(super) parameters: BTreeMap<String, Parameter>,
    actions: BTreeSet<String>,
}

/// A parameter of an agent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parameter {
    pub(super) kind: Kind,
    pub(super) required: bool,
    pub(super) default: Option<String>,
    /// The new name of this parameter, if this one is deprecated.
    pub(super) replaced_by: Option<String>,
    deprecated: bool,
}

impl Metadata {
    /// # Errors
    /// What is wrong with the text.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let document =
            Document::parse(text.trim_start()).map_err(|error| format!("its metadata is not XML: {error}"))?;
        let root = document.root_element();
        if root.tag_name().name() != "resource-agent" {
            return Err("its metadata does not describe a fence agent".to_owned());
        }
        let mut metadata = Self::default();
        for node in children(root, "parameters", "parameter") {
            let name = node.attribute("name").ok_or("its metadata has a parameter without a name")?;
            metadata.parameters.insert(name.to_owned(), parameter(node));
        }
        metadata.actions =
            children(root, "actions", "action").filter_map(|node| node.attribute("name")).map(str::to_owned).collect();
        metadata.link_old_spellings(root);
        Ok(metadata)
    }

    /// Links deprecated names to the new ones: the metadata has only the opposite direction (`obsoletes`).
    fn link_old_spellings(&mut self, root: Node<'_, '_>) {
        for node in children(root, "parameters", "parameter") {
            let (Some(new), Some(old)) = (node.attribute("name"), node.attribute("obsoletes")) else {
                continue;
            };
            if let Some(parameter) = self.parameters.get_mut(old).filter(|parameter| parameter.deprecated) {
                parameter.replaced_by = Some(new.to_owned());
            }
        }
        // Of a parameter with two deprecated names, one is linked to nothing.
        self.parameters.retain(|_, parameter| !parameter.deprecated || parameter.replaced_by.is_some());
    }

    /// # Errors
    /// Why no effect of the agent can be relied on, and the remedy.
    pub(super) fn check_usable(&self, name: &str) -> Result<(), String> {
        if let Some(why) = traps::agent_problem(name) {
            return Err(why.to_owned());
        }
        for action in ["on", "off", "status"] {
            if !self.actions.contains(action) {
                return Err(format!(
                    "it has no action `{action}`, so its effect cannot be verified; use an agent that reads power"
                ));
            }
        }
        if !self.actions.contains("reboot") {
            return Err(
                "it cuts a node off from network or storage (it cannot reboot one) and reports nothing about its \
                        power; use an agent that switches power"
                    .to_owned(),
            );
        }
        let missing = self.parameters.get("missing_as_off").and_then(|parameter| parameter.default.as_deref());
        if missing.is_some_and(traps::is_truthy) {
            return Err("it always reports a machine that it cannot find as off, which proves nothing".to_owned());
        }
        Ok(())
    }

    /// The names of accepted parameters, for messages.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let taken = self.parameters.iter().filter(|(name, parameter)| {
            let is_reviewed = parameters::class_of(name, &parameter.kind).is_some();
            is_reviewed && parameter.replaced_by.is_none() && traps::parameter_problem(name).is_none()
        });
        taken.map(|(name, _)| name.as_str())
    }
}

fn parameter(node: Node<'_, '_>) -> Parameter {
    let content = node.children().find(|child| child.has_tag_name("content"));
    let default = content.and_then(|content| content.attribute("default")).map(str::to_owned);
    let kind = match content.and_then(|content| content.attribute("type")) {
        Some("boolean") => Kind::Flag,
        Some("integer" | "second") => Kind::Number,
        Some("select") => Kind::Choice(content.into_iter().flat_map(options).collect()),
        _ => Kind::Text,
    };
    let is = |attribute: &str| node.attribute(attribute) == Some("1");
    Parameter { kind, required: is("required"), default, replaced_by: None, deprecated: is("deprecated") }
}

fn options(content: Node<'_, '_>) -> Vec<String> {
    content.children().filter_map(|option| option.attribute("value")).map(str::to_owned).collect()
}

fn children<'a>(root: Node<'a, 'a>, list: &'static str, item: &'static str) -> impl Iterator<Item = Node<'a, 'a>> {
    let lists = root.children().filter(move |node| node.has_tag_name(list));
    lists.flat_map(|list| list.children()).filter(move |node| node.has_tag_name(item))
}
