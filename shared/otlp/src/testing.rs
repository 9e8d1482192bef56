//! A fake collector for tests. Not in the shipped binary.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use pod_safety_clock::Env;
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::message::{ExportTraceServiceRequest, WireSpan, any_value};

/// Accepts spans on its own port until the test ends.
#[derive(Clone, Debug)]
pub struct Collector {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// `None`: it reads requests and does not respond.
    answer: Option<(u16, Vec<u8>)>,
    heads: Vec<String>,
    accepted: Vec<ExportTraceServiceRequest>,
}

impl Collector {
    /// Starts a collector that accepts everything.
    ///
    /// # Errors
    /// No port is available.
    pub async fn start(env: &Env) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let state = State { answer: Some((200, Vec::new())), ..State::default() };
        let collector = Self { address: listener.local_addr()?, state: Arc::new(Mutex::new(state)) };
        let (server, spawner) = (collector.clone(), Arc::clone(&env.spawner));
        let serve = async move {
            while let Ok((stream, _)) = listener.accept().await {
                let one = server.clone();
                spawner.spawn("collector", Box::pin(async move { drop(one.serve(stream).await) }));
            }
        };
        env.spawner.spawn("collector", Box::pin(serve));
        Ok(collector)
    }

    /// The URL for `--otlp-endpoint`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the response; 429 requests a pause of 7 s. Requests that are not answered with 200 are not accepted.
    pub fn set_response(&self, code: u16, body: Vec<u8>) {
        self.state.lock().answer = Some((code, body));
    }

    /// Reads requests without a response from now on.
    pub fn stop_responding(&self) {
        self.state.lock().answer = None;
    }

    /// The heads of all requests, in lower case.
    #[must_use]
    pub fn heads(&self) -> Vec<String> {
        self.state.lock().heads.clone()
    }

    /// The accepted requests.
    #[must_use]
    pub fn requests(&self) -> Vec<ExportTraceServiceRequest> {
        self.state.lock().accepted.clone()
    }

    /// The accepted spans, in order.
    #[must_use]
    pub fn spans(&self) -> Vec<WireSpan> {
        let processes = self.requests().into_iter().flat_map(|request| request.resource_spans);
        processes.flat_map(|process| process.scope_spans).flat_map(|scope| scope.spans).collect()
    }

    async fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        let mut read = Vec::new();
        let (at, head) = loop {
            if stream.read_buf(&mut read).await? == 0 {
                return Ok(());
            }
            if let Some(at) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = read.get(..at).map(String::from_utf8_lossy).unwrap_or_default();
                break (at + 4, head.to_lowercase());
            }
        };
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse().ok());
        let length: usize = length.unwrap_or(0);
        while read.len() < at + length && stream.read_buf(&mut read).await? > 0 {}
        let answer = {
            let mut state = self.state.lock();
            state.heads.push(head);
            let request = ExportTraceServiceRequest::decode(read.get(at..).unwrap_or_default());
            if let (Some((200, _)), Ok(request)) = (&state.answer, request) {
                state.accepted.push(request);
            }
            state.answer.clone()
        };
        let Some((code, body)) = answer else { return std::future::pending().await };
        let pause = if code == 429 { "retry-after: 7\r\n" } else { "" };
        let head = format!("HTTP/1.1 {code} Said\r\n{pause}content-length: {}\r\n\r\n", body.len());
        stream.write_all(&[head.as_bytes(), &body].concat()).await?;
        // The client has the whole response before the connection is closed.
        stream.shutdown().await
    }
}

impl WireSpan {
    /// The text of an attribute; of a list, its texts.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<String> {
        let attribute = self.attributes.iter().find(|one| one.key == key)?;
        match attribute.value.as_ref()?.value.as_ref()? {
            any_value::Value::Text(text) => Some(text.clone()),
            any_value::Value::Number(number) => Some(number.to_string()),
            any_value::Value::List(list) => {
                let texts = list.values.iter().filter_map(|one| match &one.value {
                    Some(any_value::Value::Text(text)) => Some(text.as_str()),
                    _ => None,
                });
                Some(texts.collect::<Vec<_>>().join(" "))
            }
        }
    }
}
