//! Reads Events.

use pod_safety_explain::EventRecord;

use super::{ClusterSnapshot, describe_refusal};
use crate::cluster::Session;

/// How many Events of a namespace are read: more of them are about other times.
const MAX_EVENTS: usize = 1_000;

impl ClusterSnapshot {
    /// Reads the Events of an object.
    pub(crate) async fn read_events(&mut self, session: &Session, namespace: &str, kind: &str, name: &str) {
        let fields = format!("fieldSelector=involvedObject.name={name},involvedObject.kind={kind}");
        self.fetch_events(session, namespace, &fields).await;
    }

    /// Reads the Events of a namespace.
    pub(crate) async fn read_namespace_events(&mut self, session: &Session, namespace: &str) {
        self.fetch_events(session, namespace, &format!("limit={MAX_EVENTS}")).await;
    }

    /// Reads the Events of all namespaces; where that is forbidden, of the default namespace.
    pub(crate) async fn read_all_events(&mut self, session: &Session) {
        // The others are too many, and report normal operation.
        let fields =
            ["Warning", "Normal,reportingComponent=pod-safety", "Normal,reportingComponent=taint-eviction-controller"];
        for fields in fields.map(|fields| format!("type={fields}")) {
            let path = format!("/api/v1/events?limit={MAX_EVENTS}&fieldSelector={fields}");
            match session.items(&path).await {
                Ok(events) => self.events.extend(events.iter().filter_map(EventRecord::from_event)),
                Err(error) => {
                    let refusal = describe_refusal(&error, "list events in all namespaces");
                    self.refused.push(format!("{refusal}: Events are not shown."));
                    return self.read_namespace_events(session, session.connection.default_namespace()).await;
                }
            }
        }
    }

    async fn fetch_events(&mut self, session: &Session, namespace: &str, query: &str) {
        match session.items(&format!("/api/v1/namespaces/{namespace}/events?{query}")).await {
            Ok(events) => self.events.extend(events.iter().filter_map(EventRecord::from_event)),
            Err(error) => {
                let refusal = describe_refusal(&error, &format!("list events in namespace {namespace}"));
                self.refused.push(format!("{refusal}: Events are not shown."));
            }
        }
    }
}
