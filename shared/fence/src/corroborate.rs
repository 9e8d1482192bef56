//! A second fact besides what devices report. It can only refute: it is read only after devices have reported off.
//!
//! Danger note: a node's address is what its kubelet wrote. A kubelet that writes a wrong one makes its node as safe
//! as it is without a second fact, and no safer.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::status_checker::StatusChecker;
use crate::api::{Corroborated, Corroboration};
use crate::client::{ApiError, Call};
use crate::model::Readiness;
use crate::record::error_chain;
use crate::wire;

/// The kubelet's port, unless the Node names another.
const KUBELET_PORT: u16 = 10_250;
/// A machine that runs answers at once. A lost packet is sent again after one second, and after three.
/// docs/assumptions.md: kubelet-port-answers
const PROBE_TIMEOUT: Duration = Duration::from_secs(4);
/// The probe is repeated at the ports of this many other nodes, to see whether pod-safety can reach any kubelet.
const MAX_OTHER_NODES: usize = 3;

impl StatusChecker<'_> {
    /// Checks that these facts agree that the node is off.
    ///
    /// # Errors
    /// The fact that refutes it, or why a fact could not be read.
    pub(super) async fn corroborate(
        &self,
        required: &[Corroboration],
        node: &str,
    ) -> Result<Vec<Corroborated>, String> {
        let mut facts = Vec::new();
        for fact in required {
            match fact {
                Corroboration::KubeletPort => {
                    let address = self.kubelet_address(node).await?;
                    self.check_unreachable(address, node).await?;
                    let at = format!("{:.3}", self.env.clock.wall());
                    facts.push(Corroborated { fact: *fact, address: address.to_string(), at });
                }
            }
        }
        Ok(facts)
    }

    /// Checks the recorded facts again, at the recorded addresses.
    ///
    /// # Errors
    /// The fact that refutes it, or why a fact could not be read.
    pub(super) async fn recheck_corroboration(&self, facts: &[Corroborated], node: &str) -> Result<(), String> {
        for Corroborated { fact, address, .. } in facts {
            match fact {
                Corroboration::KubeletPort => {
                    let unreadable = |_invalid| format!("the evidence names no address and port: {address:?}");
                    self.check_unreachable(address.parse().map_err(unreadable)?, node).await?;
                }
            }
        }
        Ok(())
    }

    async fn kubelet_address(&self, node: &str) -> Result<SocketAddr, String> {
        match self.read_kubelet_address(node).await {
            Ok(Some(address)) => Ok(address),
            Ok(None) => Err(format!("node {node} has no InternalIP, so its kubelet's port cannot be tried")),
            Err(error) => Err(error_chain(&error)),
        }
    }

    async fn read_kubelet_address(&self, node: &str) -> Result<Option<SocketAddr>, ApiError> {
        let raw = self.reader.connection.send(Call::get(format!("/api/v1/nodes/{node}"))).await?;
        let read: wire::Node = raw.decode().map_err(ApiError::Undecodable)?;
        Ok(kubelet_address_of(&read.status.unwrap_or_default()))
    }

    /// Checks that nothing answers at the address, while another node's kubelet port answers. If no node answers,
    /// pod-safety itself may be cut off.
    async fn check_unreachable(&self, address: SocketAddr, node: &str) -> Result<(), String> {
        let (own, others) = futures::future::join(
            self.transport.probe_tcp(address, PROBE_TIMEOUT),
            futures::future::join_all(self.ready_nodes(node).into_iter().map(|other| self.answers(other))),
        )
        .await;
        match own {
            Ok(true) => Err(format!(
                "all devices report off, but something answers at the kubelet's port of node {node} ({address}): its machine may run"
            )),
            Err(error) => Err(format!("the kubelet's port of node {node} ({address}) cannot be tried: {error}")),
            Ok(false) if others.contains(&true) => Ok(()),
            Ok(false) => Err(format!(
                "the kubelet's port of node {node} ({address}) does not answer, but neither do those of other nodes, so that says nothing. Allow pod-safety's pods to connect to kubelets"
            )),
        }
    }

    /// Other nodes that are Ready, up to [`MAX_OTHER_NODES`].
    fn ready_nodes(&self, node: &str) -> Vec<String> {
        let guard = self.reader.cache.read();
        let view = guard.view();
        let ready = view.nodes().filter(|other| *other.name != *node && other.readiness == Readiness::Ready);
        ready.take(MAX_OTHER_NODES).map(|other| other.name.to_string()).collect()
    }

    async fn answers(&self, node: String) -> bool {
        match self.read_kubelet_address(&node).await {
            Ok(Some(address)) => self.transport.probe_tcp(address, PROBE_TIMEOUT).await == Ok(true),
            Ok(None) | Err(_) => false,
        }
    }
}

/// Where the kubelet of a node listens, as the Node's status states.
fn kubelet_address_of(status: &wire::NodeStatus) -> Option<SocketAddr> {
    let internal = status.addresses.iter().filter(|one| one.r#type.as_deref() == Some("InternalIP"));
    let address: IpAddr = internal.filter_map(|one| one.address.as_deref()?.parse().ok()).next()?;
    let endpoint = status.daemon_endpoints.as_ref().and_then(|all| all.kubelet_endpoint.as_ref());
    let port = endpoint.and_then(|endpoint| endpoint.port).and_then(|port| u16::try_from(port).ok());
    // Protobuf writes a port that is not set as 0.
    Some(SocketAddr::new(address, port.filter(|port| *port > 0).unwrap_or(KUBELET_PORT)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_kubelet_address_comes_from_the_node_status() {
        let of = |status: Value| kubelet_address_of(&serde_json::from_value(status).unwrap()).map(|at| at.to_string());
        let addresses = json!([{ "type": "Hostname", "address": "w1" }, { "type": "ExternalIP", "address": "192.0.2.1" },
            { "type": "InternalIP", "address": "10.0.0.7" }, { "type": "InternalIP", "address": "fd00::7" }]);
        assert_eq!(of(json!({ "addresses": addresses })).as_deref(), Some("10.0.0.7:10250"));
        let port =
            |port: i64| json!({ "addresses": addresses, "daemonEndpoints": { "kubeletEndpoint": { "Port": port } } });
        assert_eq!(of(port(10_260)).as_deref(), Some("10.0.0.7:10260"));
        assert_eq!(of(port(0)).as_deref(), Some("10.0.0.7:10250"));
        assert_eq!(of(port(70_000)).as_deref(), Some("10.0.0.7:10250"));
        let alone = |address: &str| of(json!({ "addresses": [{ "type": "InternalIP", "address": address }] }));
        assert_eq!(alone("fd00::7").as_deref(), Some("[fd00::7]:10250"));
        assert_eq!((alone("w1.example"), of(json!({}))), (None, None));
    }
}
