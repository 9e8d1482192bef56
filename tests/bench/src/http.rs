//! Plain requests: etcd's JSON gateway, the admin server of pod-safety, metrics pages.

use kube::api::{GetParams, PostParams};
use kube::core::Request;
use kube::{Client, Config};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;

/// A server on loopback that asks nobody for a name.
#[derive(Clone)]
pub(crate) struct Http {
    client: Client,
}

impl Http {
    /// A client for the server at `url`, which is not contacted yet.
    pub(crate) fn to(url: &str) -> Result<Self, Error> {
        let mut config = Config::new(url.parse().map_err(|_| Error::Address(url.to_owned()))?);
        config.default_retry = false;
        let client = Client::try_from(config).map_err(Error::request(format!("make a client for {url}")))?;
        Ok(Self { client })
    }

    /// The page at `/{page}`; an error for any answer but 2xx.
    pub(crate) async fn page(&self, page: &str) -> Result<String, Error> {
        page_of(&self.client, page).await
    }

    /// Sends `body` to `path` and reads the answer.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Error> {
        let body = serde_json::to_vec(body)?;
        let request = Request::new(path).create(&PostParams::default(), body);
        let request = request.map_err(Error::request_shape("put a request together"))?;
        self.client.request(request).await.map_err(Error::request(format!("post to {path}")))
    }
}

/// The page at `/{page}` of the server behind `client`.
pub(crate) async fn page_of(client: &Client, page: &str) -> Result<String, Error> {
    let request = Request::new("").get(page, &GetParams::default());
    let request = request.map_err(Error::request_shape("put a request together"))?;
    client.request_text(request).await.map_err(Error::request(format!("read /{page}")))
}
