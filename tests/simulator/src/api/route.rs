//! From a request to the rule that it falls under. A request that is not known here is answered with 501, and the test
//! fails: a simulator that guesses proves nothing.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;

use super::failure::Failure;
use super::kinds::Kind;

/// A request as it arrives at an API server.
#[derive(Clone, Debug)]
pub struct ApiRequest {
    /// The sender, by the name of its host in the world.
    pub caller: Arc<str>,
    /// The method.
    pub method: Method,
    /// The path without its query.
    pub path: String,
    /// The query, decoded, in order.
    pub query: Vec<(String, String)>,
    /// The media type of the body.
    pub content_type: String,
    /// The media types that the answer may have.
    pub accept: String,
    /// The body.
    pub body: Bytes,
    /// Whether the sender is outside of the simulation. If such a sender requests something that the simulator does not
    /// know, the run still counts as good.
    pub stranger: bool,
    /// When it was sent, since the start of the run; `None`: when it was executed.
    pub sent: Option<Duration>,
}

impl ApiRequest {
    /// A request without a body.
    #[must_use]
    pub fn new(caller: &str, method: Method, target: &str) -> Self {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        Self {
            caller: caller.into(),
            method,
            path: path.to_owned(),
            query: parse_query(query),
            content_type: "application/json".to_owned(),
            accept: "application/json".to_owned(),
            body: Bytes::new(),
            stranger: false,
            sent: None,
        }
    }

    /// The same with a body.
    #[must_use]
    pub fn with_body(mut self, content_type: &str, body: impl Into<Bytes>) -> Self {
        content_type.clone_into(&mut self.content_type);
        self.body = body.into();
        self
    }

    /// A parameter of the query; empty if it is not there.
    #[must_use]
    pub fn parameter(&self, name: &str) -> &str {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    /// Whether it opens a watch.
    #[must_use]
    pub fn watches(&self) -> bool {
        self.method == Method::GET && matches!(self.parameter("watch"), "true" | "1")
    }

    /// Refuses parameters that no code here reads.
    pub(crate) fn only(&self, supported: &[&str]) -> Result<(), Failure> {
        match self.query.iter().find(|(key, _)| !supported.contains(&key.as_str())) {
            Some((key, _)) => {
                Err(Failure::unimplemented(format!("{} {} with the parameter {key}", self.method, self.path)))
            }
            None => Ok(()),
        }
    }

    /// `dryRun=All`.
    pub(crate) fn dry_run(&self) -> bool {
        self.parameter("dryRun") == "All"
    }
}

fn parse_query(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key), decode(value))
        })
        .collect()
}

/// Percent-decoding, with `+` for a blank.
fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        match (first, tail) {
            (b'+', _) => bytes.push(b' '),
            (b'%', [high, low, behind @ ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                if let (Some(high), Some(low)) = (digit(high), digit(low)) {
                    bytes.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
                    rest = behind;
                } else {
                    bytes.push(b'%');
                }
            }
            (byte, _) => bytes.push(*byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What a path names.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    /// The kind, by its place in the log's table.
    pub(crate) index: usize,
    pub(crate) kind: Arc<Kind>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

impl Route {
    /// Parses a path. `None`: there is nothing at it, for which the API server answers in plain text.
    pub(crate) fn parse(kinds: &[Arc<Kind>], path: &str) -> Option<Self> {
        let mut parts = path.split('/').filter(|part| !part.is_empty()).map(decode);
        let group = match parts.next()?.as_str() {
            "api" => String::new(),
            "apis" => parts.next()?,
            _ => return None,
        };
        let version = parts.next()?;
        let rest: Vec<String> = parts.collect();
        let find = |plural: &str| {
            kinds.iter().position(|kind| kind.group == group && kind.version == version && kind.plural == plural)
        };
        let (namespace, rest) = match rest.as_slice() {
            [word, namespace, plural, tail @ ..]
                if word == "namespaces" && !(group.is_empty() && matches!(plural.as_str(), "status" | "finalize")) =>
            {
                (Some(namespace.clone()), [std::slice::from_ref(plural), tail].concat())
            }
            other => (None, other.to_vec()),
        };
        let index = find(rest.first()?)?;
        let kind = Arc::clone(kinds.get(index)?);
        if rest.len() > 3 || (namespace.is_some() && !kind.namespaced) {
            return None;
        }
        if kind.namespaced && namespace.is_none() && rest.len() > 1 {
            return None;
        }
        let (name, subresource) = (rest.get(1).cloned(), rest.get(2).cloned());
        Some(Self { index, kind, namespace, name, subresource })
    }

    /// The key of the named object.
    pub(crate) fn key(&self, name: &str) -> (usize, String) {
        match &self.namespace {
            Some(namespace) => (self.index, format!("{namespace}/{name}")),
            None => (self.index, name.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Named = (String, Option<String>, Option<String>, Option<String>);

    fn route(path: &str) -> Option<Named> {
        let kinds: Vec<_> = Kind::built_in().into_iter().map(Arc::new).collect();
        let route = Route::parse(&kinds, path)?;
        Some((route.kind.kind.clone(), route.namespace, route.name, route.subresource))
    }

    #[test]
    fn paths_name_kinds_namespaces_and_names() {
        let some = |text: &str| Some(text.to_owned());
        for (path, expected) in [
            ("/api/v1/pods", Some(("Pod".to_owned(), None, None, None))),
            ("/api/v1/namespaces/a/pods/p/status", Some(("Pod".to_owned(), some("a"), some("p"), some("status")))),
            ("/api/v1/namespaces", Some(("Namespace".to_owned(), None, None, None))),
            ("/api/v1/namespaces/a", Some(("Namespace".to_owned(), None, some("a"), None))),
            ("/api/v1/namespaces/a/finalize", Some(("Namespace".to_owned(), None, some("a"), some("finalize")))),
            ("/apis/coordination.k8s.io/v1/namespaces/a/leases", Some(("Lease".to_owned(), some("a"), None, None))),
            ("/api/v1/nodes/n", Some(("Node".to_owned(), None, some("n"), None))),
            ("/api/v1/namespaces/a/nodes/n", None),
            ("/api/v1/pods/p", None),
            ("/api/v2/pods", None),
            ("/healthz", None),
        ] {
            assert_eq!(route(path), expected, "{path}");
        }
    }

    #[test]
    fn queries_are_decoded() {
        let asked = ApiRequest::new("t", Method::GET, "/p?fieldSelector=spec.nodeName%3Dn%2B1&labelSelector=a+in+(b)");
        assert_eq!(asked.parameter("fieldSelector"), "spec.nodeName=n+1");
        assert_eq!(asked.parameter("labelSelector"), "a in (b)");
    }
}
