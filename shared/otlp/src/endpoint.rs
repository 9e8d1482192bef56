//! The address of the collector.

use std::str::FromStr;

use http::Uri;
use http::uri::{Authority, Scheme};

/// The default port of OTLP over HTTP.
const PORT: u16 = 4318;

/// The address of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    authority: Authority,
    path: String,
}

/// Why a text is not the address of a collector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadEndpoint {
    /// It is not a URL.
    #[error("not a URL: {0}; use one such as http://otel-collector.observability:4318")]
    NoUrl(String),
    /// It has no scheme or no host.
    #[error("without http:// or without a host; use a URL such as http://otel-collector.observability:4318")]
    NoHost,
    /// It asks for TLS.
    #[error(
        "https is not supported; use http:// to a collector in the cluster or in the same pod, which can forward by TLS"
    )]
    Tls,
    /// It has another scheme.
    #[error("the scheme {0:?} is not supported; use http://, and the port of OTLP over HTTP (4318, not 4317 of gRPC)")]
    Scheme(String),
    /// It has a user, a password or a query.
    #[error(
        "a user, a password or a query has no meaning here; use a URL such as http://otel-collector.observability:4318"
    )]
    UnsupportedPart,
}

impl FromStr for Endpoint {
    type Err = BadEndpoint;

    fn from_str(text: &str) -> Result<Self, BadEndpoint> {
        let uri: Uri = text.trim().parse().map_err(|error| BadEndpoint::NoUrl(format!("{error}")))?;
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
            return Err(BadEndpoint::NoHost);
        };
        if *scheme == Scheme::HTTPS {
            return Err(BadEndpoint::Tls);
        }
        if *scheme != Scheme::HTTP {
            return Err(BadEndpoint::Scheme(scheme.to_string()));
        }
        if authority.host().is_empty() {
            return Err(BadEndpoint::NoHost);
        }
        if authority.as_str().contains('@') || uri.query().is_some() {
            return Err(BadEndpoint::UnsupportedPart);
        }
        // OTEL_EXPORTER_OTLP_ENDPOINT is a base, to which the signal's own path is added.
        let path = format!("{}/v1/traces", uri.path().trim_end_matches('/'));
        Ok(Self { authority: authority.clone(), path })
    }
}

impl Endpoint {
    /// The address for the connection.
    pub(super) fn address(&self) -> (&str, u16) {
        let host = self.authority.host().trim_start_matches('[').trim_end_matches(']');
        (host, self.authority.port_u16().unwrap_or(PORT))
    }

    /// The value of the header `Host`.
    pub(super) fn host(&self) -> &str {
        self.authority.as_str()
    }

    /// The path to which spans are posted.
    pub(super) fn path(&self) -> &str {
        &self.path
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_without_path_and_port_gets_those_of_otlp_traces() {
        for (given, shown, address) in [
            ("http://c:4318", "http://c:4318/v1/traces", ("c", 4318)),
            ("http://c", "http://c/v1/traces", ("c", 4318)),
            ("http://c.ns.svc:80/otlp/", "http://c.ns.svc:80/otlp/v1/traces", ("c.ns.svc", 80)),
            (" http://[::1]:4318 ", "http://[::1]:4318/v1/traces", ("::1", 4318)),
        ] {
            let endpoint: Endpoint = given.parse().unwrap();
            assert_eq!((endpoint.to_string().as_str(), endpoint.address()), (shown, address), "{given}");
        }
    }

    #[test]
    fn the_error_of_an_invalid_endpoint_names_a_valid_one() {
        for (given, expected) in [
            ("collector:4318", "http://"),
            ("", "not a URL"),
            ("/v1/traces", "without http://"),
            ("https://c:4318", "https is not supported"),
            ("grpc://c:4317", "4318, not 4317"),
            ("http://u:p@c", "a password"),
            ("http://c?x=y", "a query"),
            ("http://c c", "not a URL"),
        ] {
            let error = given.parse::<Endpoint>().unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("use "), "{given}: {error}");
        }
    }
}
