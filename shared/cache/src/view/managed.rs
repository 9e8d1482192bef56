//! The pods of a controller.

use super::View;
use crate::model::{Pod, Uid};

impl<'a> View<'a> {
    /// The pods whose controller has this UID, without those that have more labels than are kept.
    pub fn pods_of_controller(&self, controller: &Uid) -> impl Iterator<Item = &'a Pod> + use<'a> {
        let (pods, controller) = (&self.inner.pods, controller.clone());
        let candidates = self.inner.selection.pods_in_classes_of(&controller).filter_map(|uid| pods.get_known(uid));
        candidates.filter(move |pod| pod.controller.as_ref().is_some_and(|own| own.uid == controller))
    }
}
