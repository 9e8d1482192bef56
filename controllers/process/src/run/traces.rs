//! Where traces of incidents go.

use clap::Args as ClapArgs;
use pod_safety_otlp::{BadEndpoint, Endpoint};

#[derive(Debug, ClapArgs)]
pub(super) struct TraceArgs {
    /// The OpenTelemetry collector to which a trace of each incident is exported, by OTLP over HTTP: http://HOST:4318.
    /// Without it no traces are exported
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT", help_heading = "Observation")]
    otlp_endpoint: Option<String>,
}

/// A value of `--otlp-endpoint` that is no address of a collector.
#[derive(Debug, thiserror::Error)]
#[error("invalid value {value:?} for '--otlp-endpoint <URL>'")]
pub struct BadEndpointFlag {
    value: String,
    source: BadEndpoint,
}

impl TraceArgs {
    /// OpenTelemetry treats an empty variable as unset.
    pub(super) fn into_endpoint(self) -> Result<Option<Endpoint>, BadEndpointFlag> {
        let Self { otlp_endpoint } = self;
        let url = otlp_endpoint.filter(|url| !url.trim().is_empty());
        url.map(|value| value.parse().map_err(|source| BadEndpointFlag { value, source })).transpose()
    }
}
