//! NodeFences and FenceEvidences on which nothing rests any more: they are deleted.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::json;

use super::super::status_write::{StatusWrite, UpdateTurn, WriteTarget, Written, send};
use crate::client::{Call, Method, WriteCall as _};
use crate::model::{Kind, Rv, Uid};
use crate::record::LogEvent;

/// A NodeFence or FenceEvidence about an incarnation of a node, on which nothing rests any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedObject {
    /// [`Kind::NodeFences`] or [`Kind::FenceEvidences`].
    pub kind: Kind,
    /// The name of the node that it is about.
    pub node: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its UID.
    pub uid: Uid,
    /// The version that the controller saw. An object that changed since is not over.
    pub rv: Rv,
}

impl StatusWrite for FinishedObject {
    fn target(&self) -> WriteTarget<'_> {
        WriteTarget { uid: &self.uid, rv: self.rv, flow: &self.node }
    }

    fn write<'a>(&'a self, turn: UpdateTurn<'a, '_>) -> BoxFuture<'a, Written> {
        let options = json!({ "preconditions": { "uid": self.uid, "resourceVersion": self.rv } });
        send(turn, self.rv, Call::write(Method::Delete, format!("{}/{}", self.kind.path(), self.name), &options))
    }

    fn log_written(&self, controller: &'static str) {
        let Self { kind, node, name, uid, .. } = self;
        tracing::info!(event = LogEvent::HistoryDeleted.name(), controller, %uid, resource = kind.resource(), %name, %node, "deleted: it is over, nothing depends on it, and its time in --fencing-history has passed");
    }
}
