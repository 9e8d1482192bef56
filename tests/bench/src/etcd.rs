//! etcd through its JSON gateway: to see what is stored, and to write as another API server would, without
//! any work for the one that is measured.

use anyhow::Result;
use k8s_openapi::ByteString;
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::http;

/// How many objects one read brings.
const PAGE: usize = 1_000;

#[derive(Clone)]
pub(crate) struct Etcd(Client);

/// An object as it is stored: its key, and the API server's encoding of it.
#[derive(Deserialize)]
pub(crate) struct Stored {
    pub(crate) key: ByteString,
    pub(crate) value: ByteString,
}

#[derive(Deserialize)]
struct RangeResponse {
    #[serde(default)]
    kvs: Vec<Stored>,
    /// A 64-bit number, which JSON carries as text; absent when it is zero.
    #[serde(default)]
    count: Option<String>,
}

impl Etcd {
    pub(crate) fn connect(url: &str) -> Result<Self> {
        http::client(url).map(Self)
    }

    /// How many objects there are under `prefix`.
    pub(crate) async fn count(&self, prefix: &str) -> Result<usize> {
        let found = self.range(prefix.as_bytes().to_vec(), prefix, true).await?;
        Ok(found.count.and_then(|count| count.parse().ok()).unwrap_or(0))
    }

    pub(crate) async fn all(&self, prefix: &str) -> Result<Vec<Stored>> {
        let mut all = Vec::new();
        let mut from = prefix.as_bytes().to_vec();
        loop {
            let page = self.range(from, prefix, false).await?.kvs;
            let full = page.len() == PAGE;
            all.extend(page);
            let Some(last) = all.last().filter(|_| full) else { return Ok(all) };
            // The next key there can be.
            from = last.key.0.clone();
            from.push(0);
        }
    }

    /// The object of this key, if it is there.
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
        // Prefixes end with a slash; behind all that begins with one comes what begins with its successor.
        let mut range_end = prefix.as_bytes().to_vec();
        if let Some(last) = range_end.last_mut() {
            *last += 1;
        }
        let (key, range_end) = (ByteString(from), ByteString(range_end));
        let range = json!({ "key": key, "range_end": range_end, "count_only": count_only, "limit": PAGE });
        http::post(&self.0, "/v3/kv/range", &range).await
    }
}
