//! HTTP requests without TLS: etcd's JSON gateway, the admin server of pod-safety, metrics pages.

use anyhow::{Context as _, Result};
use kube::api::{GetParams, PostParams};
use kube::core::Request;
use kube::{Client, Config};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A client for the server on loopback at `url`; it does no name resolution and does not connect yet.
pub(crate) fn client(url: &str) -> Result<Client> {
    let mut config = Config::new(url.parse().with_context(|| format!("{url:?} is no address"))?);
    config.default_retry = false;
    Client::try_from(config).with_context(|| format!("cannot make a client for {url}"))
}

/// Sends `body` to `path` and reads the answer.
pub(crate) async fn post<T: DeserializeOwned>(client: &Client, path: &str, body: &Value) -> Result<T> {
    let request = Request::new(path).create(&PostParams::default(), body.to_string().into_bytes())?;
    client.request(request).await.with_context(|| format!("cannot post to {path}"))
}

/// The page at `/{page}`; an error for any answer but 2xx.
pub(crate) async fn page(client: &Client, page: &str) -> Result<String> {
    let request = Request::new("").get(page, &GetParams::default())?;
    client.request_text(request).await.with_context(|| format!("cannot read /{page}"))
}
