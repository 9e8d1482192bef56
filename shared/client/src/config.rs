//! Where the API server is and who we are to it.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use serde::Serialize;

use super::cause::cause;

/// What a person can say about the connection.
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    /// A kubeconfig file. Without it `prefer` says what is used.
    pub kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig other than its current one.
    pub context: Option<String>,
    /// The address of the API server, in place of the configuration's.
    pub server: Option<String>,
    /// What is used in a pod that has a kubeconfig, too.
    pub prefer: Prefer,
    /// The user to act as (`--as`).
    pub user: Option<String>,
    /// The groups to act as (`--as-group`).
    pub groups: Vec<String>,
    /// How long a request may take, in place of [`super::READ_TIMEOUT`].
    pub request_timeout: Option<Duration>,
}

/// What is used in a pod that has a kubeconfig, too. Outside a pod it is the kubeconfig.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefer {
    /// `$KUBECONFIG`, or `~/.kube/config`: a person means the cluster that kubectl would reach.
    #[default]
    Kubeconfig,
    /// The pod's service account: a controller means the cluster that it runs in.
    ServiceAccount,
}

/// Which cluster a connection leads to, in the words of its configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// The context of the kubeconfig; none: a pod's service account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// The address of the API server.
    pub server: String,
    /// The user that is impersonated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

impl Target {
    /// As an error names it: the address first.
    #[must_use]
    pub fn place(&self) -> String {
        match (&*self.server, &self.context) {
            ("", _) => "the API server".to_owned(),
            (server, Some(context)) => format!("{server} (context {context})"),
            (server, None) => format!("{server} (service account of this pod)"),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.context {
            Some(context) => write!(f, "context {context}, {}", self.server)?,
            None => write!(f, "service account of this pod, {}", self.server)?,
        }
        self.user.as_ref().map_or(Ok(()), |user| write!(f, ", as {user}"))
    }
}

/// Why there is no usable configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A named or default kubeconfig that cannot be used.
    #[error("the kubeconfig {path} cannot be used: {why}")]
    Kubeconfig {
        /// The file, or where it was looked for.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// In a pod, but without a usable service account.
    #[error("the pod's service account cannot be used (is automountServiceAccountToken off?): {why}")]
    InCluster {
        /// What is wrong with it.
        why: String,
    },
    /// `--context` was given where there is no kubeconfig to hold it.
    #[error(
        "--context={context} needs a kubeconfig: give --kubeconfig, or drop --context to use the pod's service account"
    )]
    ContextWithoutKubeconfig {
        /// The context.
        context: String,
    },
    /// `--as-group` was given without a user.
    #[error("--as-group needs --as: the API server takes groups only together with a user")]
    GroupsWithoutUser,
    /// `--master` is no address.
    #[error(
        "invalid value {value:?} for '--master <URL>': not the address of an API server, such as https://10.0.0.1:6443"
    )]
    Server {
        /// The value.
        value: String,
    },
    /// Read, but nothing can be sent with it.
    #[error("no connection to {place} can be set up: {why}")]
    Unusable {
        /// Which cluster.
        place: String,
        /// What is wrong with it.
        why: String,
    },
}

impl ConfigError {
    pub(crate) fn unusable(error: &kube::Error, target: &Target) -> Self {
        Self::Unusable { place: target.place(), why: cause(error) }
    }
}

/// Reads the configuration and switches off what would act behind our back.
pub(crate) async fn load(options: &ConnectOptions) -> Result<(Config, Target), ConfigError> {
    let (config, context) = find(options).await?;
    adapted(config, context, options)
}

fn adapted(
    mut config: Config,
    context: Option<String>,
    options: &ConnectOptions,
) -> Result<(Config, Target), ConfigError> {
    if let Some(server) = &options.server {
        config.cluster_url = address(server)?;
    }
    if options.user.is_some() {
        config.auth_info.impersonate.clone_from(&options.user);
    }
    if !options.groups.is_empty() {
        if config.auth_info.impersonate.is_none() {
            return Err(ConfigError::GroupsWithoutUser);
        }
        config.auth_info.impersonate_groups = Some(options.groups.clone());
    }
    // kube would repeat any request, deletions included, up to 15 times on 429,
    // 503 and 504: long after the evidence for it has expired.
    config.default_retry = false;
    let agent = concat!("pod-safety/", env!("CARGO_PKG_VERSION"));
    config.headers.push((http::header::USER_AGENT, http::HeaderValue::from_static(agent)));
    let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    let target = Target { context, server, user: config.auth_info.impersonate.clone() };
    Ok((config, target))
}

fn address(text: &str) -> Result<http::Uri, ConfigError> {
    let read = text.parse::<http::Uri>().ok();
    let is_one = |uri: &http::Uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some();
    read.filter(is_one).ok_or_else(|| ConfigError::Server { value: text.to_owned() })
}

/// The configuration, and the context that it is of.
async fn find(options: &ConnectOptions) -> Result<(Config, Option<String>), ConfigError> {
    if let Some(path) = &options.kubeconfig {
        let path = path.display().to_string();
        return of_kubeconfig(Kubeconfig::read_from(&path), path, options).await;
    }
    let in_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    let named = std::env::var_os("KUBECONFIG");
    let is_there = has_kubeconfig(named.as_deref(), std::env::home_dir().as_deref());
    if takes_service_account(options.prefer, in_pod, is_there) {
        if let Some(context) = &options.context {
            return Err(ConfigError::ContextWithoutKubeconfig { context: context.clone() });
        }
        let config = Config::incluster().map_err(|error| ConfigError::InCluster { why: cause(&error) })?;
        return Ok((config, None));
    }
    of_kubeconfig(Kubeconfig::read(), place(named.as_deref()), options).await
}

const fn takes_service_account(prefer: Prefer, in_pod: bool, has_kubeconfig: bool) -> bool {
    match prefer {
        Prefer::ServiceAccount => in_pod,
        Prefer::Kubeconfig => in_pod && !has_kubeconfig,
    }
}

/// Whether kubectl would find a kubeconfig: `$KUBECONFIG` names one, or the usual one is there.
fn has_kubeconfig(named: Option<&OsStr>, home: Option<&Path>) -> bool {
    let names_one = |paths| std::env::split_paths(paths).any(|path| !path.as_os_str().is_empty());
    named.is_some_and(names_one) || home.is_some_and(|home| home.join(".kube/config").exists())
}

/// Where the kubeconfig is looked for, as an error says it.
fn place(named: Option<&OsStr>) -> String {
    let named = named.filter(|paths| !paths.is_empty());
    named.map_or_else(|| "~/.kube/config".to_owned(), |paths| paths.to_string_lossy().into_owned())
}

async fn of_kubeconfig(
    file: Result<Kubeconfig, KubeconfigError>,
    path: String,
    options: &ConnectOptions,
) -> Result<(Config, Option<String>), ConfigError> {
    let wanted = KubeConfigOptions { context: options.context.clone(), cluster: None, user: None };
    let unusable = |error: &KubeconfigError, contexts: &str| ConfigError::Kubeconfig {
        path: path.clone(),
        why: format!("{}{contexts}", cause(error)),
    };
    let file = file.map_err(|error| unusable(&error, ""))?;
    let there: Vec<String> = file.contexts.iter().map(|one| one.name.clone()).collect();
    let context = options.context.clone().or_else(|| file.current_context.clone());
    let config = Config::from_custom_kubeconfig(file, &wanted).await.map_err(|error| {
        let is_choice =
            matches!(error, KubeconfigError::LoadContext(_) | KubeconfigError::CurrentContextNotSet);
        unusable(&error, &if is_choice { these(&there) } else { String::new() })
    })?;
    Ok((config, context))
}

/// The contexts from which to choose.
fn these(contexts: &[String]) -> String {
    match contexts {
        [] => "; it has no contexts".to_owned(),
        some => format!("; its contexts are {}", some.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a runner's pod `fence` acted on the cluster of the runner, whatever `$KUBECONFIG` said.
    #[test]
    fn bug_a_persons_kubeconfig_goes_before_the_service_account_of_the_pod() {
        for (prefer, in_pod, has_kubeconfig, takes) in [
            (Prefer::Kubeconfig, true, true, false),
            (Prefer::Kubeconfig, true, false, true),
            (Prefer::Kubeconfig, false, false, false),
            (Prefer::ServiceAccount, true, true, true),
            (Prefer::ServiceAccount, false, true, false),
        ] {
            let found = takes_service_account(prefer, in_pod, has_kubeconfig);
            assert_eq!(found, takes, "{prefer:?} {in_pod} {has_kubeconfig}");
        }
    }

    #[test]
    fn a_kubeconfig_is_there_as_kubectl_sees_it() {
        let home = tempfile::tempdir().unwrap();
        let has = |named: Option<&str>| has_kubeconfig(named.map(OsStr::new), Some(home.path()));
        for (named, has_one) in [(None, false), (Some(""), false), (Some(":"), false), (Some(":/a"), true)] {
            assert_eq!(has(named), has_one, "{named:?}");
        }
        std::fs::create_dir(home.path().join(".kube")).unwrap();
        std::fs::write(home.path().join(".kube/config"), "").unwrap();
        assert!(has(None) && has(Some("")));
        assert!(!has_kubeconfig(None, None));
        for (named, shown) in
            [(None, "~/.kube/config"), (Some(""), "~/.kube/config"), (Some("/a:/b"), "/a:/b")]
        {
            assert_eq!(place(named.map(OsStr::new)), shown);
        }
    }

    #[test]
    fn the_address_of_an_api_server_has_a_scheme_and_a_host() {
        assert_eq!(address("https://10.0.0.1:6443").unwrap().to_string(), "https://10.0.0.1:6443/");
        for text in ["", "10.0.0.1:6443", "ftp://10.0.0.1", "/api", "https:///api"] {
            let error = address(text).unwrap_err();
            assert!(error.to_string().contains(&format!("{text:?} for '--master <URL>'")), "{error}");
        }
    }

    #[tokio::test]
    async fn a_target_names_context_server_and_user() {
        let file = Kubeconfig::from_yaml(
            "clusters: [{ name: c, cluster: { server: 'https://10.0.0.1:6443' } }]\n\
             contexts: [{ name: prod, context: { cluster: c, user: u } }, { name: stage, context: { cluster: c, user: u } }]\n\
             users: [{ name: u, user: { token: t } }]\ncurrent-context: prod\n",
        );
        let file = file.unwrap();
        let load = async |options: &ConnectOptions| {
            let (config, context) = of_kubeconfig(Ok(file.clone()), "f".to_owned(), options).await?;
            adapted(config, context, options)
        };
        let (_, target) = load(&ConnectOptions::default()).await.unwrap();
        assert_eq!(target.to_string(), "context prod, https://10.0.0.1:6443");
        let groups = ConnectOptions { groups: vec!["g".to_owned()], ..ConnectOptions::default() };
        assert!(matches!(load(&groups).await, Err(ConfigError::GroupsWithoutUser)));
        let other =
            ConnectOptions { context: Some("stage".to_owned()), user: Some("bob".to_owned()), ..groups };
        let (config, target) = load(&other).await.unwrap();
        assert_eq!(target.to_string(), "context stage, https://10.0.0.1:6443, as bob");
        assert_eq!(config.auth_info.impersonate_groups, Some(vec!["g".to_owned()]));
    }
}
