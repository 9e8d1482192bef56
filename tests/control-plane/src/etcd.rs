//! Starts etcd: one member, or several that form a cluster.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::net::TcpStream;

use crate::folder::Folder;
use crate::port::Port;
use crate::{Error, Program, tool};

/// Room for some hundred thousand pods; etcd's own default stops writes at 2 GiB.
const QUOTA_BYTES: u64 = 8 << 30;

/// A member: its client address, its peer address, and the program, unless it is stopped.
pub(crate) struct Member {
    name: String,
    pub(crate) client: Port,
    peer: String,
    /// etcd requires a peer port, even for a single member.
    _peer: Port,
    pub(crate) program: Option<Program>,
}

impl Member {
    /// The first is called `etcd`, another `etcd-1`; its peers connect to it at this address.
    pub(crate) fn prepare(at: usize, address: IpAddr) -> Result<Self, Error> {
        let name = if at == 0 { "etcd".to_owned() } else { format!("etcd-{at}") };
        let (client, port) = (Port::reserve()?, Port::reserve()?);
        let peer = format!("http://{address}:{}", port.number());
        Ok(Self { name, client, peer, _peer: port, program: None })
    }

    async fn start(&mut self, cluster: &str, folder: &Arc<Folder>) -> Result<(), Error> {
        let client = self.client.url("http");
        let mut args = vec![
            format!("--name={}", self.name),
            format!("--data-dir={}", folder.data().join(&self.name).display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={}", self.peer),
            format!("--initial-advertise-peer-urls={}", self.peer),
            format!("--initial-cluster={cluster}"),
            format!("--quota-backend-bytes={QUOTA_BYTES}"),
            // The machine does not lose power during a test, and fsync would dominate the measured times.
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
        ];
        if cluster.contains(',') {
            // So that packets between two members can be identified by their addresses, whichever side connected.
            args.push("--feature-gates=SetMemberLocalAddr=true".to_owned());
        }
        let program = Program::start(&self.name, &tool("etcd").await?, args, [], folder.clone())?;
        self.program = Some(program);
        Ok(())
    }
}

/// Starts the members that do not run, with their stored data, and waits until each listens, which it does when a majority has a leader.
pub(crate) async fn start(members: &mut [Member], folder: &Arc<Folder>) -> Result<(), Error> {
    let all: Vec<_> = members.iter().map(|member| format!("{}={}", member.name, member.peer)).collect();
    let cluster = all.join(",");
    for member in &mut *members {
        let runs = member.program.as_mut().map(Program::exited).transpose()?.is_some_and(|end| end.is_none());
        if !runs {
            member.start(&cluster, folder).await?;
        }
    }
    for member in members {
        let address = (std::net::Ipv4Addr::LOCALHOST, member.client.number());
        if let Some(program) = &mut member.program {
            let listens = async || TcpStream::connect(address).await.map(drop).map_err(|error| error.to_string());
            program.wait_for("listen", listens).await?;
        }
    }
    Ok(())
}
