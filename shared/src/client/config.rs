//! Where the API server is and who we are to it.

use std::path::PathBuf;

use kube::Config;
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};

/// What a person can say about the connection.
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    /// A kubeconfig file. Without it: the pod's service account, or outside a
    /// cluster `$KUBECONFIG`, or `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig other than its current one.
    pub context: Option<String>,
    /// The address of the API server, in place of the configuration's.
    pub server: Option<String>,
}

/// Why there is no usable configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A named or default kubeconfig that cannot be read.
    #[error("reading the kubeconfig {path}")]
    Kubeconfig {
        /// The file, or where it was looked for.
        path: String,
        /// What is wrong with it.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// In a pod, but without a usable service account.
    #[error("reading the pod's service account (is automountServiceAccountToken off?)")]
    InCluster {
        /// What is wrong with it.
        #[source]
        source: InClusterError,
    },
    /// `--context` was given where there is no kubeconfig to hold it.
    #[error(
        "--context={context} needs a kubeconfig: give --kubeconfig, or drop --context to use the pod's service account"
    )]
    ContextWithoutKubeconfig {
        /// The context.
        context: String,
    },
    /// `--master` is no address.
    #[error(
        "invalid value {value:?} for '--master <URL>': not the address of an API server, such as https://10.0.0.1:6443"
    )]
    Server {
        /// The value.
        value: String,
    },
    /// Read, but nothing can be sent with it.
    #[error("setting up the connection")]
    Unusable {
        /// What is wrong with it.
        #[source]
        source: kube::Error,
    },
}

/// Reads the configuration and switches off what would act behind our back.
pub(super) async fn load(options: &ConnectOptions) -> Result<Config, ConfigError> {
    let mut config = find(options).await?;
    if let Some(server) = &options.server {
        config.cluster_url = address(server)?;
    }
    // kube would repeat any request, deletions included, up to 15 times on 429,
    // 503 and 504: long after the evidence for it has expired.
    config.default_retry = false;
    let agent = concat!("pod-safety/", env!("CARGO_PKG_VERSION"));
    config.headers.push((http::header::USER_AGENT, http::HeaderValue::from_static(agent)));
    Ok(config)
}

fn address(text: &str) -> Result<http::Uri, ConfigError> {
    let read = text.parse::<http::Uri>().ok();
    let is_one = |uri: &http::Uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some();
    read.filter(is_one).ok_or_else(|| ConfigError::Server { value: text.to_owned() })
}

async fn find(options: &ConnectOptions) -> Result<Config, ConfigError> {
    let wanted = KubeConfigOptions { context: options.context.clone(), cluster: None, user: None };
    if let Some(path) = &options.kubeconfig {
        let named = |source: KubeconfigError| ConfigError::Kubeconfig {
            path: path.display().to_string(),
            source: Box::new(source),
        };
        let file = Kubeconfig::read_from(path).map_err(named)?;
        return Config::from_custom_kubeconfig(file, &wanted).await.map_err(named);
    }
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        if let Some(context) = &options.context {
            return Err(ConfigError::ContextWithoutKubeconfig { context: context.clone() });
        }
        return Config::incluster().map_err(|source| ConfigError::InCluster { source });
    }
    let default = |source: KubeconfigError| ConfigError::Kubeconfig {
        path: std::env::var("KUBECONFIG").unwrap_or_else(|_unset| "~/.kube/config".to_owned()),
        source: Box::new(source),
    };
    Config::from_kubeconfig(&wanted).await.map_err(default)
}
