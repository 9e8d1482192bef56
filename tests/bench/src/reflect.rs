//! Two reference contenders. Each watches what pod-safety watches for pod garbage collection: pods, nodes and the Leases of nodes.
//!
//! - `kube-runtime`: an idiomatic implementation. Streaming lists, types with only the needed fields and metadata,
//!   `DeserializeGuard` for each object, a store for each kind, and a `Controller` that reconciles pods.
//!   Its reconcile function finds the node of the pod in the store and makes no further decision.
//! - `floor`: reads the same lists and watches as pod-safety, in protobuf, and drops the bytes, through
//!   `kube::Client`: the cost of that client without decoding.
//!
//! Each prints [`SYNCED`] when it has read all lists, and then continues until it is stopped.

use std::fmt::Debug;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use http_body_util::BodyExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::Api;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::DeserializeGuard;
use kube::{Client, Config, Resource};
use kube_runtime::controller::{Action, Config as Pace, Controller};
use kube_runtime::reflector::{self, ObjectRef, Store};
use kube_runtime::{WatchStreamExt as _, watcher};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

/// Printed when all lists have been read.
pub(crate) const SYNCED: &str = "caches are synced";

const POLL_INTERVAL: std::time::Duration = std::time::Duration::from_millis(10);

/// The number of pods that pod-safety decides about concurrently.
const AT_A_TIME: u16 = 16;

/// Follows pods, nodes and Leases until it is ended.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Reflect {
    /// The cluster
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,

    /// Read the bytes and drop them
    #[arg(long)]
    floor: bool,
}

pub(crate) async fn run(plan: Reflect) -> Result<()> {
    let kubeconfig = Kubeconfig::read_from(&plan.kubeconfig).context("reading the kubeconfig")?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.read_timeout = None;
    let client = Client::try_from(config)?;
    if plan.floor { read_and_drop(&client).await } else { reflect(client).await }
}

fn synced() -> Result<()> {
    writeln!(std::io::stdout(), "{SYNCED}").context("telling the benchmark")
}

/// The needed metadata.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Identity {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
}

fn identity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let Identity { name, namespace, uid, resource_version, deletion_timestamp, deletion_grace_period_seconds } =
        Identity::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name,
        namespace,
        uid,
        resource_version,
        deletion_timestamp,
        deletion_grace_period_seconds,
        ..ObjectMeta::default()
    })
}

/// A kind with only the needed fields.
macro_rules! lean {
    ($name:ident: $full:ty { $($(#[$attribute:meta])* $part:ident: $fields:ident { $($field:ident: $kind:ty,)* })* }) => {
        $(
            #[derive(Clone, Debug, Default, Deserialize)]
            #[serde(rename_all = "camelCase", default)]
            struct $fields { $($field: Option<$kind>,)* }
        )*

        #[derive(Clone, Debug, Deserialize)]
        struct $name {
            #[serde(deserialize_with = "identity")]
            metadata: ObjectMeta,
            $(#[serde(default)] $(#[$attribute])* $part: $fields,)*
        }

        impl Resource for $name {
            type DynamicType = ();
            type Scope = <$full as Resource>::Scope;
            fn kind((): &()) -> std::borrow::Cow<'_, str> { <$full>::kind(&()) }
            fn group((): &()) -> std::borrow::Cow<'_, str> { <$full>::group(&()) }
            fn version((): &()) -> std::borrow::Cow<'_, str> { <$full>::version(&()) }
            fn plural((): &()) -> std::borrow::Cow<'_, str> { <$full>::plural(&()) }
            fn meta(&self) -> &ObjectMeta { &self.metadata }
            fn meta_mut(&mut self) -> &mut ObjectMeta { &mut self.metadata }
        }
    };
}

lean!(Pod: k8s_openapi::api::core::v1::Pod {
    spec: PodSpec { node_name: String, }
    status: PodStatus { phase: String, }
});
lean!(Node: k8s_openapi::api::core::v1::Node {
    #[expect(dead_code, reason = "what is kept is measured")]
    spec: NodeSpec { provider_id: String, }
});
lean!(Lease: k8s_openapi::api::coordination::v1::Lease {
    #[expect(dead_code, reason = "what is kept is measured")]
    spec: LeaseSpec { holder_identity: String, renew_time: String, lease_duration_seconds: i32, }
});

async fn reflect(client: Client) -> Result<()> {
    let nodes = start_reflector(Api::<DeserializeGuard<Node>>::all(client.clone()));
    let leases = start_reflector(Api::<DeserializeGuard<Lease>>::namespaced(client.clone(), "kube-node-lease"));
    let config = watcher::Config::default().streaming_lists();
    let pods = Controller::new(Api::<DeserializeGuard<Pod>>::all(client), config);
    let store = pods.store();
    let controller = pods
        .with_config(Pace::default().concurrency(AT_A_TIME))
        .run(reconcile, |_, _, _| Action::await_change(), Arc::new(nodes.clone()))
        .for_each(async |done| {
            if let Err(error) = done {
                report_error(&error);
            }
        });
    let controller = tokio::spawn(controller);
    tokio::try_join!(nodes.wait_until_ready(), leases.wait_until_ready())?;
    // The controller waits for the same store, which would not wake this task. A store is filled at once when the list is complete.
    while store.is_empty() {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    synced()?;
    controller.await.context("the controller has ended")
}

type Nodes = Store<DeserializeGuard<Node>>;

/// Whether the pod may have to be removed: the first check of a pod garbage collector.
async fn reconcile(pod: Arc<DeserializeGuard<Pod>>, nodes: Arc<Nodes>) -> Result<Action, std::convert::Infallible> {
    if let Ok(pod) = &pod.0 {
        let is_terminal = matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed"));
        let node = pod.spec.node_name.as_deref().and_then(|name| nodes.get(&ObjectRef::new(name)));
        std::hint::black_box((is_terminal, node));
    }
    Ok(Action::await_change())
}

/// Prints the error to the log.
fn report_error(error: &dyn std::error::Error) {
    let _nobody = writeln!(std::io::stderr(), "{error}: {:?}", error.source());
}

/// A store of all objects, and the task that updates it.
fn start_reflector<K>(api: Api<K>) -> Store<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (store, writer) = reflector::store();
    let config = watcher::Config::default().streaming_lists();
    let stream = reflector::reflector(writer, watcher(api, config).default_backoff());
    tokio::spawn(stream.for_each(async |event| {
        if let Err(error) = event {
            report_error(&error);
        }
    }));
    store
}

async fn read_and_drop(client: &Client) -> Result<()> {
    let paths = ["/api/v1/pods", "/api/v1/nodes", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"];
    let versions = futures::future::try_join_all(paths.map(|path| async move {
        let version = version(client, path).await?;
        drain(client, path).await?;
        anyhow::Ok(version)
    }));
    let versions = versions.await?;
    synced()?;
    let watches = paths.into_iter().zip(versions).map(|(path, version)| async move {
        loop {
            drain(client, &format!("{path}?watch=true&allowWatchBookmarks=true&resourceVersion={version}")).await?;
        }
    });
    futures::future::try_join_all(watches).await.map(|_: Vec<()>| ())
}

/// The resourceVersion of a list.
async fn version(client: &Client, path: &str) -> Result<String> {
    let request = http::Request::get(format!("{path}?limit=1")).body(Vec::new())?;
    let list: serde_json::Value = client.request(request).await?;
    Ok(list["metadata"]["resourceVersion"].as_str().context("a list without a version")?.to_owned())
}

/// Reads a protobuf response to its end.
async fn drain(client: &Client, path: &str) -> Result<()> {
    let protobuf = "application/vnd.kubernetes.protobuf";
    let accept = if path.contains('?') { format!("{protobuf};stream=watch") } else { protobuf.to_owned() };
    let request = http::Request::get(path).header(http::header::ACCEPT, accept).body(Body::empty())?;
    let answer = client.send(request).await?;
    anyhow::ensure!(answer.status().is_success(), "{path}: {}", answer.status());
    answer.into_body().into_data_stream().try_for_each(|_| std::future::ready(Ok(()))).await?;
    Ok(())
}
