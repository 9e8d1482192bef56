//! Pods that took over the names of others: when they were scheduled and Ready.

use std::collections::BTreeSet;

use super::Look;
use crate::cluster::Session;

/// So many of them are read whole.
const SUCCESSORS: usize = 50;

impl Look {
    /// The pod of this name whole, for when it was scheduled and Ready. Without the right to read it that is not told.
    pub(crate) async fn ask_successor(&mut self, session: &Session, namespace: &str, name: &str) {
        if let Ok(pod) = session.whole(&format!("/api/v1/namespaces/{namespace}/pods/{name}")).await {
            self.successors.push(pod);
        }
    }

    /// The pods that took over the names of pods that were force deleted.
    pub(crate) async fn ask_successors(&mut self, session: &Session) {
        let removed = self.said.iter().filter(|one| one.reason == "ForceDeleted");
        let names: BTreeSet<(String, String)> = removed
            .filter_map(|one| one.object.strip_prefix("pod/")?.split_once('/'))
            .map(|(namespace, name)| (namespace.to_owned(), name.to_owned()))
            .collect();
        for (namespace, name) in names.into_iter().take(SUCCESSORS) {
            self.ask_successor(session, &namespace, &name).await;
        }
    }
}
