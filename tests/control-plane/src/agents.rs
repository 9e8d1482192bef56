//! Node agents without a kubelet that starts them.

use std::path::PathBuf;

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::Api;
use kube::api::PostParams;

use crate::access::TOKEN_SECONDS;
use crate::eventually::until;
use crate::{ControlPlane, Error, binary, chart, helm};

/// The chart's name for the agents' service account, in the release's namespace.
const ACCOUNT: &str = "pod-safety-agent";
const NAMESPACE: &str = "pod-safety";

/// The agent binary, built beside that of the controllers.
pub async fn agent() -> Result<PathBuf, Error> {
    let program = binary().await?;
    let built = program.ancestors().skip(1).map(|folder| folder.join(ACCOUNT)).find(|path| path.is_file());
    built.ok_or_else(|| {
        Error::Tools(format!("there is no {ACCOUNT} beside {}: cargo build -p {ACCOUNT}", program.display()))
    })
}

impl ControlPlane {
    /// Installs the rights of the agents and the admission policy on their Leases, as in the chart. The DaemonSet is left out: its pods would
    /// need an image.
    pub async fn install_agents(&self) -> Result<(), Error> {
        let chart = chart();
        let args = [
            "template",
            "pod-safety",
            &chart.to_string_lossy(),
            "--namespace=pod-safety",
            "--set=agent.enabled=true",
            "--show-only=templates/agent.yaml",
            "--show-only=templates/admission/watchdog.yaml",
        ];
        let rendered = helm(&args).await?.text()?;
        let all = rendered.split("\n---").filter(|object| !object.contains("\nkind: DaemonSet"));
        self.kubectl_with(&["apply", "-f", "-"], &all.collect::<Vec<_>>().join("\n---")).await?.text()?;
        Ok(())
    }

    /// A token that names a node, like that of an agent's pod, once the node exists.
    pub async fn agent_token(&self, node: &str) -> Result<String, Error> {
        let nodes = Api::<Node>::all(self.admin());
        let node = until(&format!("node {node} is there"), async || {
            let node_object = nodes.get_opt(node).await.map_err(|error| error.to_string())?;
            node_object.ok_or_else(|| "it is not".to_owned())
        })
        .await?;
        let bound = BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: node.metadata.name,
            uid: node.metadata.uid,
        };
        let spec = TokenRequestSpec {
            bound_object_ref: Some(bound),
            expiration_seconds: Some(TOKEN_SECONDS),
            ..TokenRequestSpec::default()
        };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let accounts = Api::<ServiceAccount>::namespaced(self.admin(), NAMESPACE);
        let answer = accounts.create_token_request(ACCOUNT, &PostParams::default(), &request).await;
        let answer = answer.map_err(Error::api(format!("get a token for {ACCOUNT}")))?;
        answer.status.and_then(|status| status.token).ok_or(Error::Incomplete("the token"))
    }

    /// The certificate authority of its servers.
    pub fn authority(&self) -> PathBuf {
        self.pki.authority_file()
    }
}
