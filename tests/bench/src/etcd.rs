//! etcd through its JSON gateway: reads stored objects, and writes as another API server would, without any work for the measured one.

use anyhow::Result;
use k8s_openapi::ByteString;
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::http;

/// The number of objects per read.
const PAGE: usize = 1_000;

#[derive(Clone)]
pub(crate) struct Etcd(Client);

/// A stored object: its key, and its encoding by the API server.
#[derive(Deserialize)]
pub(crate) struct Stored {
    pub(crate) key: ByteString,
    pub(crate) value: ByteString,
}

#[derive(Deserialize)]
struct RangeResponse {
    #[serde(default)]
    kvs: Vec<Stored>,
    /// A 64-bit number, as text in JSON; absent when it is zero.
    #[serde(default)]
    count: Option<String>,
}

impl Etcd {
    pub(crate) fn connect(url: &str) -> Result<Self> {
        http::client(url).map(Self)
    }

    /// How many objects there are under `prefix`.
    pub(crate) async fn count(&self, prefix: &str) -> Result<usize> {
        let response = self.range(prefix.as_bytes().to_vec(), prefix, true).await?;
        Ok(response.count.and_then(|count| count.parse().ok()).unwrap_or(0))
    }

    pub(crate) async fn all(&self, prefix: &str) -> Result<Vec<Stored>> {
        let mut all = Vec::new();
        let mut from = prefix.as_bytes().to_vec();
        loop {
            let page = self.range(from, prefix, false).await?.kvs;
            let full = page.len() == PAGE;
            all.extend(page);
            let Some(last) = all.last().filter(|_| full) else { return Ok(all) };
            // The smallest following key.
            from = last.key.0.clone();
            from.push(0);
        }
    }

    /// The object with this key, if it exists.
    pub(crate) async fn get(&self, key: &str) -> Result<Option<Stored>> {
        let one = json!({ "key": ByteString(key.as_bytes().to_vec()) });
        Ok(http::post::<RangeResponse>(&self.0, "/v3/kv/range", &one).await?.kvs.pop())
    }

    /// Writes one object, in a revision of its own.
    pub(crate) async fn put(&self, key: &ByteString, value: Vec<u8>) -> Result<()> {
        let put = json!({ "key": key, "value": ByteString(value) });
        http::post::<Value>(&self.0, "/v3/kv/put", &put).await.map(drop)
    }

    pub(crate) async fn delete(&self, key: &ByteString) -> Result<()> {
        http::post::<Value>(&self.0, "/v3/kv/deleterange", &json!({ "key": key })).await.map(drop)
    }

    async fn range(&self, from: Vec<u8>, prefix: &str, count_only: bool) -> Result<RangeResponse> {
        // Prefixes end with a slash; the end of the range is the prefix with its last byte incremented.
        let mut range_end = prefix.as_bytes().to_vec();
        if let Some(last) = range_end.last_mut() {
            *last += 1;
        }
        let (key, range_end) = (ByteString(from), ByteString(range_end));
        let range = json!({ "key": key, "range_end": range_end, "count_only": count_only, "limit": PAGE });
        http::post(&self.0, "/v3/kv/range", &range).await
    }
}
