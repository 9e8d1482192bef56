//! A synthetic API server: lists and watches of a cluster of any size, generated from numbers while they are sent.
//!
//! - `template`: an object with placeholders; `world`: their values; `renewals`: the schedule of Lease renewals; `writes`: writes to pods
//!   and nodes; `marks`: nodes marked Unknown; `objects`: the Lease of the leader
//! - `messages`: lists and events; `stream`: both while they are sent; `server`: routing
//!
//! It has pods, nodes and Leases, and returns empty lists for all other kinds. Of writes it stores which pods were marked Failed, which
//! were removed, and which nodes were marked Unknown. `tests` compares its bytes with those of a real API server.

mod marks;
mod messages;
mod objects;
mod renewals;
mod server;
mod stream;
mod template;
mod world;
mod writes;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use renewals::RenewalSchedule;
pub(crate) use server::{MARKED, PODS, STOPPED_PATH};
use world::World;
pub(crate) use world::{Size, ZONES, pod};

/// Serves a cluster that is made up, until it is killed.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Serve {
    /// How many nodes
    #[arg(long, value_name = "COUNT", default_value = "5000")]
    pub(crate) nodes: usize,

    /// How many pods on them
    #[arg(long, value_name = "COUNT", default_value = "150000")]
    pub(crate) pods: usize,

    /// How many Leases of nodes are renewed in each second
    #[arg(long, value_name = "COUNT", default_value = "0")]
    pub(crate) heartbeats: u32,

    /// Other seeds give other UIDs
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    pub(crate) seed: u64,

    /// So many nodes of the first zone are no more, and their pods are orphans
    #[arg(long, value_name = "COUNT", default_value = "0")]
    pub(crate) lost: usize,

    /// Nodes have the labels that kube-controller-manager gives them
    #[arg(long)]
    pub(crate) labelled: bool,

    /// Where `kubeconfig` is written, once it serves
    #[arg(long, value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
}

/// The kubeconfig for clients.
pub(crate) fn kubeconfig(folder: &Path) -> PathBuf {
    folder.join("kubeconfig")
}

pub(crate) async fn serve(plan: Serve) -> Result<()> {
    let size = Size { nodes: plan.nodes, pods: plan.pods, seed: plan.seed, lost: plan.lost };
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let world = World::new(size, RenewalSchedule::new(plan.nodes, plan.heartbeats, began), plan.labelled)?;
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
    let (acceptor, certificate) = tls()?;
    write_kubeconfig(&plan.folder, listener.local_addr()?, &certificate)?;
    server::run(listener, acceptor, Arc::new(world)).await
}

/// Go's HTTP server encrypts in records of this size. Records of 16 KiB, the maximum, would cost the client less than those of a real API
/// server.
const RECORD: usize = 4096;
const RECORD_HEADER: usize = 5;

/// A self-signed certificate.
fn tls() -> Result<(TlsAcceptor, String)> {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()])?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)?;
    config.max_fragment_size = Some(RECORD + RECORD_HEADER);
    Ok((TlsAcceptor::from(Arc::new(config)), made.cert.pem()))
}

fn write_kubeconfig(folder: &Path, address: SocketAddr, certificate: &str) -> Result<()> {
    let authority = folder.join("authority.crt");
    std::fs::write(&authority, certificate).with_context(|| format!("writing {}", authority.display()))?;
    let name = "synthetic";
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "clusters": [{ "name": name, "cluster": {
            "server": format!("https://{address}"), "certificate-authority": std::path::absolute(&authority)? } }],
        "users": [{ "name": name, "user": { "token": "none" } }],
        "contexts": [{ "name": name, "context": { "cluster": name, "user": name } }],
    });
    // It appears atomically: a test waits for it.
    let (file, unfinished) = (kubeconfig(folder), folder.join("unfinished"));
    std::fs::write(&unfinished, text.to_string()).and_then(|()| std::fs::rename(&unfinished, &file))?;
    Ok(())
}

#[cfg(test)]
mod tests;
