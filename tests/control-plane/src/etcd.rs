//! Starts etcd.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;

use crate::folder::Folder;
use crate::port::Port;
use crate::{Error, Program, tool};

const READY: Duration = Duration::from_secs(30);

/// Room for some hundred thousand pods; etcd's own default stops writes at 2 GiB.
const QUOTA_BYTES: u64 = 8 << 30;

pub(crate) async fn start(client: &Port, peer: &Port, folder: &Arc<Folder>) -> Result<Program, Error> {
    let (client_url, peer_url) = (client.url("http"), peer.url("http"));
    let args = [
        "--name=etcd".to_owned(),
        format!("--data-dir={}", folder.data().display()),
        format!("--listen-client-urls={client_url}"),
        format!("--advertise-client-urls={client_url}"),
        format!("--listen-peer-urls={peer_url}"),
        format!("--initial-advertise-peer-urls={peer_url}"),
        format!("--initial-cluster=etcd={peer_url}"),
        format!("--quota-backend-bytes={QUOTA_BYTES}"),
        // The machine does not lose power during a test, and waiting for the disk hides our own times.
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
    ];
    let mut etcd = Program::start("etcd", &tool("etcd").await?, args, [], folder.clone())?;
    etcd.until("listen", READY, async || {
        let address = (std::net::Ipv4Addr::LOCALHOST, client.number());
        TcpStream::connect(address).await.map(drop).map_err(|error| error.to_string())
    })
    .await?;
    Ok(etcd)
}
