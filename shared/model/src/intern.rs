//! Shares the allocations of values that many objects have in common: namespaces, node names, labels, tolerations,
//! controllers.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Controller, Labels, Tolerations};

/// Returns the same allocation for equal values, so that 150,000 pods share the names of their few namespaces and
/// nodes, and the labels of their replicas.
#[derive(Debug, Default)]
pub struct Interner {
    strings: BTreeSet<Arc<str>>,
    labels: BTreeSet<Labels>,
    tolerations: BTreeSet<Tolerations>,
    controllers: BTreeSet<Arc<Controller>>,
}

impl Interner {
    /// The shared form of `text`.
    pub fn intern(&mut self, text: &str) -> Arc<str> {
        if let Some(existing) = self.strings.get(text) {
            return Arc::clone(existing);
        }
        let fresh: Arc<str> = text.into();
        self.strings.insert(Arc::clone(&fresh));
        fresh
    }

    /// The shared form of these labels.
    pub fn labels(&mut self, labels: Labels) -> Labels {
        if let Some(existing) = self.labels.get(&labels) {
            return existing.clone();
        }
        self.labels.insert(labels.clone());
        labels
    }

    /// The shared form of these tolerations: nearly all pods have the two default ones of the API server.
    pub fn tolerations(&mut self, tolerations: Tolerations) -> Tolerations {
        if let Some(existing) = self.tolerations.get(&tolerations) {
            return existing.clone();
        }
        self.tolerations.insert(tolerations.clone());
        tolerations
    }

    /// The shared form of this controller.
    pub fn controller(&mut self, controller: Arc<Controller>) -> Arc<Controller> {
        if let Some(existing) = self.controllers.get(&controller) {
            return Arc::clone(existing);
        }
        self.controllers.insert(Arc::clone(&controller));
        controller
    }

    /// Drops values that are used nowhere else.
    pub fn shrink(&mut self) {
        self.strings.retain(|name| Arc::strong_count(name) > 1);
        self.labels.retain(Labels::is_shared);
        self.tolerations.retain(Tolerations::is_shared);
        self.controllers.retain(|controller| Arc::strong_count(controller) > 1);
    }

    /// How many distinct names are stored.
    #[must_use]
    pub fn len(&self) -> usize {
        self.strings.len()
    }

    /// Whether no name is stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.strings.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_share_one_allocation_until_they_are_dropped() {
        let mut interner = Interner::default();
        let first = interner.intern("node-a");
        assert!(Arc::ptr_eq(&first, &interner.intern("node-a")));
        interner.shrink();
        assert_eq!(interner.len(), 1);
        drop(first);
        interner.shrink();
        assert!(interner.is_empty());
    }
}
