//! Reads objects by the resource names that kubectl accepts, without kubectl: awaited objects are read many times a second, and starting a
//! process each time would keep the machine busy.

use std::time::Duration;

use http::Method;
use kube::Client;
use serde_json::Value;
use tokio::sync::Mutex;

use crate::{ControlPlane, Error, eventually};

/// All groups in one aggregated answer.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The delay before discovery is repeated.
const DISCOVERY_ATTEMPTS: Duration = Duration::from_millis(200);

/// A defined kind is served within this time; else its name is misspelt.
const DISCOVERED: Duration = Duration::from_secs(60);

/// The resources of the API server, as last discovered.
#[derive(Debug, Default)]
pub(crate) struct Resources(Mutex<Vec<Resource>>);

#[derive(Clone, Debug)]
struct Resource {
    /// `/apis/apps/v1`.
    version: String,
    plural: String,
    /// All its names: plural, singular, short names.
    names: Vec<String>,
    namespaced: bool,
}

impl Resource {
    fn path(&self, namespace: &str, name: &str) -> String {
        let Self { version, plural, .. } = self;
        if self.namespaced {
            format!("{version}/namespaces/{namespace}/{plural}/{name}")
        } else {
            format!("{version}/{plural}/{name}")
        }
    }
}

impl Resources {
    async fn find(&self, kind: &str) -> Option<Resource> {
        let all = self.0.lock().await;
        let named = |one: &&Resource| one.names.iter().any(|name| name.eq_ignore_ascii_case(kind));
        all.iter().find(named).cloned()
    }

    async fn discover(&self, client: &Client) -> Result<(), Error> {
        let mut all = Vec::new();
        for path in ["/api", "/apis"] {
            let failed = || Error::api(format!("discover {path}"));
            let request = http::Request::get(path).header("accept", ACCEPT).body(Vec::new());
            let request = request.map_err(kube::Error::HttpError).map_err(failed())?;
            let answer: Value = client.request(request).await.map_err(failed())?;
            for group in list(&answer["items"]) {
                let name = text(&group["metadata"]["name"]);
                // The preferred version of the API server comes first.
                for version in list(&group["versions"]) {
                    let root = if name.is_empty() { path.to_owned() } else { format!("{path}/{name}") };
                    let root = format!("{root}/{}", text(&version["version"]));
                    all.extend(list(&version["resources"]).map(|resource| from_discovery(resource, name, &root)));
                }
            }
        }
        *self.0.lock().await = all;
        Ok(())
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn from_discovery(resource: &Value, group: &str, version: &str) -> Resource {
    let plural = &resource["resource"];
    let others = [plural, &resource["singularResource"], &resource["responseKind"]["kind"]];
    let names = list(&resource["shortNames"]).chain(others);
    Resource {
        version: version.to_owned(),
        plural: text(plural).to_owned(),
        names: names.map(|name| text(name).to_owned()).chain([format!("{}.{group}", text(plural))]).collect(),
        namespaced: resource["scope"] == "Namespaced",
    }
}

impl ControlPlane {
    async fn resource(&self, kind: &str) -> Result<Resource, Error> {
        // A kind that was just defined may not be in discovery yet.
        eventually(&format!("the API server knows {kind}"), DISCOVERED, async || {
            if let Some(resource) = self.resources.find(kind).await {
                return Ok(resource);
            }
            self.resources.discover(&self.admin).await?;
            self.resources.find(kind).await.ok_or(Error::Incomplete("that kind"))
        })
        .await
    }

    async fn read_path(&self, path: &str) -> Result<Option<Value>, Error> {
        loop {
            match crate::raw::send(&self.admin, Method::GET, path, "application/json", &Value::Null).await {
                Ok(object) => return Ok(Some(object)),
                Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(None),
                // The API server answers so for a kind that was just defined; kubectl waits, too.
                Err(kube::Error::Api(status)) if status.code == 429 => tokio::time::sleep(DISCOVERY_ATTEMPTS).await,
                Err(error) => return Err(Error::api(format!("read {path}"))(error)),
            }
        }
    }

    /// All objects of a kind, in all namespaces (`kubectl get KIND -A`).
    pub async fn list(&self, kind: &str) -> Result<Vec<Value>, Error> {
        let Resource { version, plural, .. } = self.resource(kind).await?;
        let mut answer = self.read_path(&format!("{version}/{plural}")).await?;
        let items = answer.as_mut().and_then(|answer| answer["items"].as_array_mut());
        items.map(std::mem::take).ok_or(Error::Incomplete("items"))
    }

    /// An object, if it exists (`kubectl get KIND NAME --ignore-not-found`). The namespace is ignored for cluster-scoped kinds.
    pub async fn find(&self, kind: &str, namespace: &str, name: &str) -> Result<Option<Value>, Error> {
        let path = self.resource(kind).await?.path(namespace, name);
        self.read_path(&path).await
    }

    /// Merges into the status of an object.
    pub async fn patch_status(&self, kind: &str, namespace: &str, name: &str, status: &Value) -> Result<(), Error> {
        let path = format!("{}/status", self.resource(kind).await?.path(namespace, name));
        crate::raw::merge(&self.admin, &path, &serde_json::json!({ "status": status })).await.map(drop)
    }
}
