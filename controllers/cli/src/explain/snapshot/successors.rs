//! Pods that replaced earlier pods of the same name: when they were scheduled and Ready.

use std::collections::BTreeSet;

use super::ClusterSnapshot;
use crate::cluster::Session;

/// How many of them are read with all fields.
const MAX_SUCCESSORS: usize = 50;

impl ClusterSnapshot {
    /// Reads the pod of this name with all fields, for when it was scheduled and Ready. Without the right to read it
    /// that is not shown.
    pub(crate) async fn read_successor(&mut self, session: &Session, namespace: &str, name: &str) {
        if let Ok(pod) = session.get_raw(&format!("/api/v1/namespaces/{namespace}/pods/{name}")).await {
            self.successors.push(pod);
        }
    }

    /// Reads the pods that replaced pods that were force deleted.
    pub(crate) async fn read_successors(&mut self, session: &Session) {
        let removed = self.events.iter().filter(|one| one.reason == "ForceDeleted");
        let names: BTreeSet<(String, String)> = removed
            .filter_map(|one| one.object.strip_prefix("pod/")?.split_once('/'))
            .map(|(namespace, name)| (namespace.to_owned(), name.to_owned()))
            .collect();
        for (namespace, name) in names.into_iter().take(MAX_SUCCESSORS) {
            self.read_successor(session, &namespace, &name).await;
        }
    }
}
