//! A cloud provider to fence with: moto's EC2, with Debian's fence_aws as its client.

use std::path::{Path, PathBuf};

use kube::Client;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use super::Rigs;
use crate::port::Port;
use crate::{Error, Program};

/// The region of its instances.
pub const REGION: &str = "eu-central-1";

/// A running cloud. Dropping it ends it.
pub struct Ec2 {
    _program: Program,
    client: Client,
    agents: PathBuf,
    metadata: AbortHandle,
}

impl Drop for Ec2 {
    fn drop(&mut self) {
        self.metadata.abort();
    }
}

impl Rigs {
    /// A cloud with a running instance for the agent itself: fence_aws stops nothing unless its own instance runs.
    pub async fn ec2(&self) -> Result<Ec2, Error> {
        let port = Port::reserve()?;
        let args = ["-H".to_owned(), "127.0.0.1".to_owned(), "-p".to_owned(), port.number().to_string()];
        let path = self.tools.join("bin/moto_server");
        let mut program = Program::start("ec2", &path, args, [], self.folder.clone())?;
        program.wait_for("listen", async || super::listens(port.number()).await).await?;
        let url = port.url("http");
        let uri = url.parse().map_err(|error| Error::Tools(format!("{url}: {error}")))?;
        let client = Client::try_from(kube::Config::new(uri))
            .map_err(|error| Error::Tools(format!("a client of {url}: {error}")))?;
        let own = launch(&client).await?;
        // A proxy acts as the metadata service, whose address a test cannot use. The requests to the cloud do not go through it.
        let (address, metadata) = serve(move |request| {
            let body = if request.starts_with(b"PUT") { "token" } else { &*own };
            ("200 OK", body.to_owned())
        })
        .await?;
        let variables = format!("AWS_ENDPOINT_URL={url} http_proxy=http://{address} no_proxy=127.0.0.1");
        let agents = self.wrapped("ec2-agents", "fence_aws", &variables)?;
        Ok(Ec2 { _program: program, client, agents, metadata })
    }

    /// The fence_aws of a cloud that answers every request with this API error, and the server, which ends when dropped.
    pub async fn ec2_refusing(
        &self,
        status: &'static str,
        code: &'static str,
    ) -> Result<(PathBuf, AbortHandle), Error> {
        let body = format!(
            "<Response><Errors><Error><Code>{code}</Code><Message>{code}.</Message></Error></Errors></Response>"
        );
        let (address, cloud) = serve(move |_| (status, body.clone())).await?;
        // One attempt is enough: retries of the client would take many seconds.
        let variables = format!("AWS_ENDPOINT_URL=http://{address} AWS_MAX_ATTEMPTS=1");
        Ok((self.wrapped(&format!("ec2-{code}"), "fence_aws", &variables)?, cloud))
    }
}

impl Ec2 {
    /// The folder of its fence_aws.
    pub fn agents(&self) -> &Path {
        &self.agents
    }

    /// Launches an instance; returns its ID.
    pub async fn launch(&self) -> Result<String, Error> {
        launch(&self.client).await
    }

    /// `running`, `stopped`, `terminated` …
    pub async fn state(&self, id: &str) -> Result<String, Error> {
        let answer = send_request(&self.client, &format!("Action=DescribeInstances&InstanceId.1={id}")).await?;
        let state = answer.split_once("<instanceState>").and_then(|(_, rest)| between(rest, "<name>"));
        state.ok_or_else(|| Error::Tools(format!("no state of {id} in {answer}")))
    }

    /// Terminates an instance, like another client of the cloud.
    pub async fn terminate(&self, id: &str) -> Result<(), Error> {
        send_request(&self.client, &format!("Action=TerminateInstances&InstanceId.1={id}")).await.map(drop)
    }
}

fn between(text: &str, tag: &str) -> Option<String> {
    let (_, rest) = text.split_once(tag)?;
    Some(rest.split_once('<')?.0.to_owned())
}

async fn launch(client: &Client) -> Result<String, Error> {
    let answer = send_request(client, "Action=RunInstances&ImageId=ami-12c6146b&MinCount=1&MaxCount=1").await?;
    between(&answer, "<instanceId>").ok_or_else(|| Error::Tools(format!("no instance in {answer}")))
}

/// A request to EC2. moto reads the region from the signature, and does not verify it.
async fn send_request(client: &Client, query: &str) -> Result<String, Error> {
    let credential = format!("test/20260101/{REGION}/ec2/aws4_request");
    let request = http::Request::post("/")
        .header("Content-Type", "application/x-www-form-urlencoded")
        .header("Authorization", format!("AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host, Signature=0"))
        .body(format!("{query}&Version=2016-11-15").into_bytes())
        .map_err(|error| Error::Tools(error.to_string()))?;
    client.request_text(request).await.map_err(|error| Error::Tools(format!("{query}: {error}")))
}

/// Whether a request has arrived with its whole body.
fn is_complete(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.to_ascii_lowercase();
    let length = length.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    body.len() >= length.unwrap_or(0)
}

/// A server that answers each request with a status line and a body.
async fn serve(
    answer: impl Fn(&[u8]) -> (&'static str, String) + Send + 'static,
) -> Result<(std::net::SocketAddr, AbortHandle), Error> {
    let io = |error: std::io::Error| Error::Tools(format!("a server of a cloud: {error}"));
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(io)?;
    let address = listener.local_addr().map_err(io)?;
    let serves = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !is_complete(&request) && stream.read_buf(&mut request).await.is_ok_and(|read| read > 0) {}
            let (status, body) = answer(&request);
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            // The agent may have been killed.
            let _gone = stream.write_all((head + &body).as_bytes()).await;
        }
    });
    Ok((address, serves.abort_handle()))
}
