//! etcd through its JSON gateway: to see what is stored, and to write as another API server would, without
//! any work for the one that is measured.

use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::http::Http;

/// How many objects one read brings.
const PAGE: usize = 1_000;

/// A client of one etcd.
#[derive(Clone)]
pub(crate) struct Etcd {
    http: Http,
}

/// An object as it is stored.
#[derive(Deserialize)]
pub(crate) struct Stored {
    /// Its key.
    pub(crate) key: ByteString,
    /// The API server's encoding of it.
    pub(crate) value: ByteString,
}

#[derive(Serialize)]
struct Range {
    key: ByteString,
    range_end: ByteString,
    count_only: bool,
    limit: usize,
}

#[derive(Deserialize)]
struct Found {
    #[serde(default)]
    kvs: Vec<Stored>,
    /// A 64-bit number, which JSON carries as text; absent when it is zero.
    #[serde(default)]
    count: Option<String>,
}

#[derive(Serialize)]
struct Put<'a> {
    key: &'a ByteString,
    value: ByteString,
}

#[derive(Serialize)]
struct Delete<'a> {
    key: &'a ByteString,
}

#[derive(Deserialize)]
struct Done {}

impl Etcd {
    pub(crate) fn at(url: &str) -> Result<Self, Error> {
        Ok(Self { http: Http::to(url)? })
    }

    /// How many objects there are under `prefix`.
    pub(crate) async fn count(&self, prefix: &str) -> Result<usize, Error> {
        let found = self.range(prefix.as_bytes().to_vec(), prefix, true).await?;
        Ok(found.count.and_then(|count| count.parse().ok()).unwrap_or(0))
    }

    /// All objects under `prefix`.
    pub(crate) async fn all(&self, prefix: &str) -> Result<Vec<Stored>, Error> {
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
    pub(crate) async fn get(&self, key: &str) -> Result<Option<Stored>, Error> {
        let key = ByteString(key.as_bytes().to_vec());
        let one = Range { key, range_end: ByteString::default(), count_only: false, limit: 1 };
        Ok(self.http.post::<Found>("/v3/kv/range", &one).await?.kvs.pop())
    }

    /// Writes one object, in a revision of its own.
    pub(crate) async fn put(&self, key: &ByteString, value: Vec<u8>) -> Result<(), Error> {
        let put = Put { key, value: ByteString(value) };
        self.http.post::<Done>("/v3/kv/put", &put).await.map(drop)
    }

    /// Removes one object.
    pub(crate) async fn delete(&self, key: &ByteString) -> Result<(), Error> {
        self.http.post::<Done>("/v3/kv/deleterange", &Delete { key }).await.map(drop)
    }

    async fn range(&self, from: Vec<u8>, prefix: &str, count_only: bool) -> Result<Found, Error> {
        // Prefixes end with a slash; behind all that begins with one comes what begins with its successor.
        let mut range_end = prefix.as_bytes().to_vec();
        if let Some(last) = range_end.last_mut() {
            *last += 1;
        }
        let range =
            Range { key: ByteString(from), range_end: ByteString(range_end), count_only, limit: PAGE };
        self.http.post("/v3/kv/range", &range).await
    }
}
