//! Objects of one kind by UID, with the number of the list that last contained each, so that a relist finds removed
//! objects.

use std::collections::{BTreeMap, btree_map};

use crate::model::Uid;

/// An object, or why it cannot be decoded.
#[derive(Clone, Debug)]
pub(super) enum Entry<T> {
    Known(T),
    Undecodable(Box<str>),
}

#[derive(Debug)]
struct Slot<T> {
    /// The number of the list that last contained this object.
    list: u32,
    entry: Entry<T>,
}

/// All objects of one kind. Each has its own allocation: a third of the slots of a B-tree is empty, and with 150,000
/// pods stored in them that took more memory than everything else in this process.
#[derive(Debug)]
pub(crate) struct Table<T> {
    slots: BTreeMap<Uid, Box<Slot<T>>>,
    list: u32,
    undecodable: usize,
    /// Objects of the current list of which not even the UID can be read.
    unidentified: usize,
    /// Those of the previous list, which count until the current one has ended.
    unidentified_before: usize,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { slots: BTreeMap::new(), list: 0, undecodable: 0, unidentified: 0, unidentified_before: 0 }
    }
}

impl<T> Table<T> {
    pub(super) fn get(&self, uid: &Uid) -> Option<&Entry<T>> {
        self.slots.get(uid).map(|slot| &slot.entry)
    }

    pub(super) fn get_known(&self, uid: &Uid) -> Option<&T> {
        match self.get(uid)? {
            Entry::Known(object) => Some(object),
            Entry::Undecodable(_) => None,
        }
    }

    /// Replaces the object and returns the former entry.
    pub(super) fn put(&mut self, uid: Uid, entry: Entry<T>) -> Option<Entry<T>> {
        self.undecodable += usize::from(matches!(entry, Entry::Undecodable(_)));
        let slot = Slot { list: self.list, entry };
        let before = match self.slots.entry(uid) {
            // Reuses the box: one allocation less for each event of a watch.
            btree_map::Entry::Occupied(mut occupied) => Some(std::mem::replace(&mut **occupied.get_mut(), slot).entry),
            btree_map::Entry::Vacant(vacant) => {
                vacant.insert(Box::new(slot));
                None
            }
        };
        self.undecodable -= usize::from(matches!(before, Some(Entry::Undecodable(_))));
        before
    }

    pub(super) fn remove(&mut self, uid: &Uid) -> Option<Entry<T>> {
        let removed = self.slots.remove(uid).map(|slot| slot.entry);
        self.undecodable -= usize::from(matches!(removed, Some(Entry::Undecodable(_))));
        removed
    }

    pub(super) fn count_unidentified(&mut self) {
        self.unidentified += 1;
    }

    pub(super) fn begin_list(&mut self) {
        self.list = self.list.wrapping_add(1);
        self.unidentified_before = self.unidentified();
        self.unidentified = 0;
    }

    /// Ends the current list; returns the objects that it did not contain.
    pub(super) fn end_list(&mut self) -> Vec<Uid> {
        self.unidentified_before = 0;
        self.slots.iter().filter(|(_, slot)| slot.list != self.list).map(|(uid, _)| uid.clone()).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.values().filter_map(|slot| match &slot.entry {
            Entry::Known(object) => Some(object),
            Entry::Undecodable(_) => None,
        })
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.values_mut().filter_map(|slot| match &mut slot.entry {
            Entry::Known(object) => Some(object),
            Entry::Undecodable(_) => None,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) const fn undecodable(&self) -> usize {
        self.undecodable + self.unidentified()
    }

    pub(super) const fn unidentified(&self) -> usize {
        if self.unidentified > self.unidentified_before { self.unidentified } else { self.unidentified_before }
    }
}
