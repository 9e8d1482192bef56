//! One allocation for each distinct namespace and node name.

use std::collections::BTreeSet;
use std::sync::Arc;

/// Gives the same `Arc` for the same text, so that 150,000 pods share the names
/// of their few namespaces and nodes.
#[derive(Debug, Default)]
pub struct Interner {
    known: BTreeSet<Arc<str>>,
}

impl Interner {
    /// The shared form of `text`.
    pub fn intern(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.known.get(text) {
            return Arc::clone(known);
        }
        let fresh: Arc<str> = text.into();
        self.known.insert(Arc::clone(&fresh));
        fresh
    }

    /// Drops the names that nothing else holds any more.
    pub fn shrink(&mut self) {
        self.known.retain(|name| Arc::strong_count(name) > 1);
    }

    /// How many distinct names are held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether no name is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_share_one_allocation_until_nobody_holds_them() {
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
