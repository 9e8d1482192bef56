//! What was said in Events.

use pod_safety_explain::Said;

use super::{Look, refusal};
use crate::cluster::Session;

/// So many Events of a namespace are read: those beyond are of other times.
const EVENTS: usize = 1_000;

impl Look {
    /// What was said of an object.
    pub(crate) async fn hear(&mut self, session: &Session, namespace: &str, kind: &str, name: &str) {
        let fields = format!("fieldSelector=involvedObject.name={name},involvedObject.kind={kind}");
        self.take(session, namespace, &fields).await;
    }

    /// What was said in a namespace.
    pub(crate) async fn hear_all(&mut self, session: &Session, namespace: &str) {
        self.take(session, namespace, &format!("limit={EVENTS}")).await;
    }

    /// What was said anywhere; where that may not be asked, in the usual namespace.
    pub(crate) async fn hear_everywhere(&mut self, session: &Session) {
        // Of all others there are too many, and they say what goes well.
        let fields = [
            "Warning",
            "Normal,reportingComponent=pod-safety",
            "Normal,reportingComponent=taint-eviction-controller",
        ];
        for fields in fields.map(|fields| format!("type={fields}")) {
            let path = format!("/api/v1/events?limit={EVENTS}&fieldSelector={fields}");
            match session.items(&path).await {
                Ok(events) => self.said.extend(events.iter().filter_map(Said::of)),
                Err(error) => {
                    let refusal = refusal(&error, "list events in all namespaces");
                    self.refused.push(format!("{refusal}: Events are not shown."));
                    return self.hear_all(session, session.connection.default_namespace()).await;
                }
            }
        }
    }

    async fn take(&mut self, session: &Session, namespace: &str, query: &str) {
        match session.items(&format!("/api/v1/namespaces/{namespace}/events?{query}")).await {
            Ok(events) => self.said.extend(events.iter().filter_map(Said::of)),
            Err(error) => {
                let refusal = refusal(&error, &format!("list events in namespace {namespace}"));
                self.refused.push(format!("{refusal}: Events are not shown."));
            }
        }
    }
}
