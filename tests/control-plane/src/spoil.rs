//! Changes stored objects in etcd, without the API server.

use http::Method;
use k8s_openapi::ByteString;
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::{ControlPlane, Error, raw};

impl ControlPlane {
    /// Overwrites bytes of a stored object, like a broken disk, a foreign encoder or an older API server with fewer validation rules: the API
    /// server does not validate stored strings, and serves them unchanged. `key` is the object's etcd key; the object must contain `from`, and
    /// `to` must not be longer.
    pub async fn corrupt_object(&self, key: &str, from: &[u8], to: &[u8]) -> Result<(), Error> {
        let url = self.etcd_url().parse().map_err(|_| Error::Incomplete("a URL of etcd"))?;
        let failed = || Error::api(format!("spoil {key}"));
        let etcd = Client::try_from(Config::new(url)).map_err(failed())?;
        let ask = async |path: &str, body: Value| {
            raw::send(&etcd, Method::POST, path, "application/json", &body).await.map_err(failed())
        };
        let stored_as = json!(ByteString(key.as_bytes().to_vec()));
        let response = ask("/v3/kv/range", json!({ "key": stored_as })).await?;
        let value = serde_json::from_value(response["kvs"][0]["value"].clone());
        let ByteString(mut bytes) = value.map_err(|_| Error::Incomplete("the stored object"))?;
        let at = bytes.windows(from.len()).position(|window| window == from);
        let at = at.ok_or(Error::Incomplete("the bytes to write over"))?;
        bytes[at..at + to.len()].copy_from_slice(to);
        ask("/v3/kv/put", json!({ "key": stored_as, "value": ByteString(bytes) })).await.map(drop)
    }
}
