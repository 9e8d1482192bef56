//! The configuration: the address of the API server, and the credentials.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Uri};
use kube::client::ConfigExt as _;
use rustls::ClientConfig;
use serde::Serialize;

use super::cause::explain;
use super::kubeconfig::{self, ActAs, Cluster, InvalidKubeconfig, SelectedContext};
use super::login::Login;
use super::proxy::{self, Variables};
use super::route::{Connector, Route, Tls};
use super::tls::{self, ServerTrust};
use pod_safety_clock::Env;

/// The maximum length of an address. A longer address is invalid, and with a path it would exceed the maximum length of a
/// request.
const MAX_ADDRESS: usize = 4096;

/// The user's options for the connection.
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    /// A kubeconfig file. Without it `prefer` decides.
    pub kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig other than its current one.
    pub context: Option<String>,
    /// The address of the API server, in place of the configuration's.
    pub server: Option<String>,
    /// Which configuration is used in a pod that also has a kubeconfig.
    pub prefer: Prefer,
    /// The user to act as (`--as`).
    pub user: Option<String>,
    /// The groups to act as (`--as-group`).
    pub groups: Vec<String>,
    /// How long a request may take, in place of [`super::READ_TIMEOUT`].
    pub request_timeout: Option<Duration>,
}

/// Which configuration is used in a pod that also has a kubeconfig. Outside a pod it is the kubeconfig.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefer {
    /// `$KUBECONFIG`, or `~/.kube/config`: a user expects the cluster that kubectl would use.
    #[default]
    Kubeconfig,
    /// The pod's service account: a controller expects the cluster in which it runs.
    ServiceAccount,
}

/// The cluster of a connection, as its configuration names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// The context of the kubeconfig; `None`: the service account of a pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// The address of the API server.
    pub server: String,
    /// The user that is impersonated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

impl Target {
    /// The target in an error message: the address first.
    #[must_use]
    pub fn describe(&self) -> String {
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
        /// The file, or the places that were searched.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// The process runs in a pod without a usable service account.
    #[error("the pod's service account cannot be used (is automountServiceAccountToken off?): {why}")]
    InCluster {
        /// What is wrong with it.
        why: String,
    },
    /// `--context` was given, but there is no kubeconfig.
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
    /// The configuration was read, but no request can be sent with it.
    #[error("no connection to {place} can be set up: {why}")]
    Unusable {
        /// The cluster.
        place: String,
        /// What is wrong with it.
        why: String,
    },
}

impl From<InvalidKubeconfig> for ConfigError {
    fn from(unfit: InvalidKubeconfig) -> Self {
        Self::Kubeconfig { path: unfit.path, why: unfit.why }
    }
}

/// A route to the API server, and its target.
pub(crate) struct ResolvedConfig {
    pub(crate) route: Route,
    pub(crate) target: Target,
    pub(crate) namespace: String,
}

/// The environment of this process.
pub(crate) struct ProcessEnv<'a> {
    pub(crate) env: &'a Env,
    pub(crate) variable: &'a (dyn Fn(&str) -> Option<OsString> + Sync),
}

impl ProcessEnv<'_> {
    fn home(&self) -> Option<PathBuf> {
        (self.variable)("HOME").filter(|home| !home.is_empty()).map(PathBuf::from).or_else(std::env::home_dir)
    }

    fn proxies(&self) -> Variables {
        Variables::read(|name| (self.variable)(name).and_then(|value| value.into_string().ok()))
    }
}

/// Reads the configuration.
pub(crate) async fn load(options: &ConnectOptions, process: &ProcessEnv<'_>) -> Result<ResolvedConfig, ConfigError> {
    let (resolved, login) = match find_source(options, process)? {
        ConfigSource::Kubeconfig(chosen) => from_kubeconfig(*chosen, options, process)?,
        ConfigSource::Pod => from_service_account(options, process)?,
    };
    let unusable = |why: String| ConfigError::Unusable { place: resolved.target.describe(), why };
    login.begin().await.map_err(|error| unusable(error.to_string()))?;
    Ok(resolved)
}

fn from_kubeconfig(
    chosen: SelectedContext,
    options: &ConnectOptions,
    process: &ProcessEnv<'_>,
) -> Result<(ResolvedConfig, Arc<Login>), ConfigError> {
    let SelectedContext { context, namespace, cluster, user, cluster_at, user_at } = chosen;
    let unfit = |why: String| ConfigError::from(cluster_at.invalid(&why));
    let server = match &options.server {
        Some(server) => parse_master(server)?,
        None => parse_server(&cluster.server).map_err(|why| unfit(format!("server {:?} {why}", cluster.server)))?,
    };
    let is_tls = server.scheme_str() == Some("https");
    let target = Target { context, server: display_address(&server), user: None };
    let proxy = proxy::select(&server, cluster.proxy.as_deref(), &process.proxies());
    let proxy = proxy.map_err(|why| match cluster.proxy {
        Some(_) => unfit(why),
        None => ConfigError::Unusable { place: target.describe(), why },
    })?;
    let login = Login::from_user(&user, &cluster, is_tls, process.env);
    let login = Arc::new(login.map_err(|error| ConfigError::from(user_at.invalid(&error.to_string())))?);
    let hop_is_tls = proxy.as_ref().is_some_and(|proxy| proxy.address.scheme_str() == Some("https"));
    let tls = if is_tls || hop_is_tls {
        tls_config(&cluster).map_err(unfit)?
    } else {
        tls::config_without_roots().map_err(unfit)?
    };
    let name = cluster.server_name.map(|name| {
        let parsed = name.clone().try_into();
        parsed.map_err(|_not_one| unfit(format!("tls-server-name {name:?} is no name of a host")))
    });
    let name = name.transpose()?;
    let uses_machine_authorities = cluster.authority.is_none_or(|pem| pem.is_empty());
    let plan = ConnectionPlan { server, proxy, tls, is_tls, name, uses_machine_authorities, act_as: user.act_as };
    Ok((plan.resolve(options, target, namespace, &login)?, login))
}

/// The TLS configuration for a cluster. Without a certificate authority it uses those of this machine.
fn tls_config(cluster: &Cluster) -> Result<ClientConfig, String> {
    let trust = match &cluster.authority {
        _ if cluster.insecure => ServerTrust::Any,
        Some(pem) if !pem.is_empty() => {
            ServerTrust::Certificates(tls::parse_bundle(pem).map_err(|why| format!("certificate-authority: {why}"))?)
        }
        _ => {
            let machine = kube::Config::new(Uri::default()).rustls_client_config();
            return machine.map_err(|error| explain(&error));
        }
    };
    tls::client_config(&trust)
}

/// The parts of a connection before it is opened.
struct ConnectionPlan {
    server: Uri,
    proxy: Option<proxy::Proxy>,
    tls: ClientConfig,
    is_tls: bool,
    name: Option<rustls::pki_types::ServerName<'static>>,
    uses_machine_authorities: bool,
    act_as: ActAs,
}

impl ConnectionPlan {
    fn resolve(
        self,
        options: &ConnectOptions,
        target: Target,
        namespace: Option<String>,
        login: &Arc<Login>,
    ) -> Result<ResolvedConfig, ConfigError> {
        let Self { server, proxy, tls, is_tls, name, uses_machine_authorities, mut act_as } = self;
        if let Some(user) = &options.user {
            act_as.user.clone_from(user);
        }
        if !options.groups.is_empty() {
            if act_as.user.is_empty() {
                return Err(ConfigError::GroupsWithoutUser);
            }
            act_as.groups.clone_from(&options.groups);
        }
        let headers = headers(&act_as).map_err(|why| ConfigError::Unusable { place: target.describe(), why })?;
        let user = Some(act_as.user).filter(|user| !user.is_empty());
        let mut client_tls = tls.clone();
        client_tls.client_auth_cert_resolver = Arc::clone(&login.client_certificate) as _;
        let connector = Connector {
            proxy: proxy.map(|proxy| (proxy, Arc::new(tls))),
            tls: is_tls.then(|| Tls { config: Arc::new(client_tls), name, uses_machine_authorities }),
        };
        let route = Route::new(server, connector, Arc::clone(login), headers);
        let namespace = namespace.unwrap_or_else(|| "default".to_owned());
        Ok(ResolvedConfig { route, target: Target { user, ..target }, namespace })
    }
}

/// The configuration of the pod's service account. Its certificate authority is read again when it changes.
fn from_service_account(
    options: &ConnectOptions,
    process: &ProcessEnv<'_>,
) -> Result<(ResolvedConfig, Arc<Login>), ConfigError> {
    let unusable = |why: String| ConfigError::InCluster { why };
    let config = kube::Config::incluster().map_err(|error| unusable(explain(&error)))?;
    let server = match &options.server {
        Some(server) => parse_master(server)?,
        None => config.cluster_url.clone(),
    };
    let is_tls = server.scheme_str() == Some("https");
    let tls = config.rustls_client_config().map_err(|error| unusable(explain(&error)))?;
    let token = config.auth_info.token_file.clone().unwrap_or_default();
    let login = Login::from_token_file(token.into(), process.env).map_err(|error| unusable(error.to_string()))?;
    let proxy = proxy::select(&server, None, &process.proxies()).map_err(unusable)?;
    let (login, target) = (Arc::new(login), Target { context: None, server: display_address(&server), user: None });
    let (uses_machine_authorities, act_as) = (false, ActAs::default());
    let plan = ConnectionPlan { server, proxy, tls, is_tls, name: None, uses_machine_authorities, act_as };
    Ok((plan.resolve(options, target, Some(config.default_namespace), &login)?, login))
}

fn display_address(server: &Uri) -> String {
    server.to_string().trim_end_matches('/').to_owned()
}

/// The headers of each request besides the credentials.
fn headers(act_as: &ActAs) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let agent = concat!("pod-safety/", env!("CARGO_PKG_VERSION"));
    let mut headers = vec![(http::header::USER_AGENT, HeaderValue::from_static(agent))];
    if act_as.user.is_empty() {
        return Ok(headers);
    }
    let mut push = |name: &str, value: &str| {
        let bad = || format!("{value:?} cannot be impersonated: it has a character that no request may have");
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_bad| bad())?;
        headers.push((name, HeaderValue::from_bytes(value.as_bytes()).map_err(|_bad| bad())?));
        Ok::<_, String>(())
    };
    push("Impersonate-User", &act_as.user)?;
    if let Some(uid) = &act_as.uid {
        push("Impersonate-Uid", uid)?;
    }
    for group in &act_as.groups {
        push("Impersonate-Group", group)?;
    }
    for (key, value) in &act_as.extra {
        push(&format!("Impersonate-Extra-{}", escaped(key)), value)?;
    }
    Ok(headers)
}

/// A key as part of a header name: characters that are not allowed are written as `%XX`.
fn escaped(key: &str) -> String {
    let stays = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte);
    key.bytes().map(|byte| if stays(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

fn parse_master(text: &str) -> Result<Uri, ConfigError> {
    let bad = || ConfigError::Server { value: text.to_owned() };
    if text.contains("://") { parse_server(text).map_err(|_why| bad()) } else { Err(bad()) }
}

/// Parses the address of an API server, as client-go's `DefaultServerURL` does: without a scheme it uses HTTP.
fn parse_server(text: &str) -> Result<Uri, String> {
    const NONE: &str = "is not the address of an API server, such as https://10.0.0.1:6443";
    let has_scheme = text.contains("://");
    let whole = if has_scheme { text.to_owned() } else { format!("http://{text}") };
    let uri = whole.parse::<Uri>().ok().filter(|_| text.len() <= MAX_ADDRESS).ok_or(NONE)?;
    let scheme = uri.scheme_str().filter(|scheme| matches!(*scheme, "http" | "https"));
    let (scheme, authority) = (scheme.ok_or("needs https:// or http://")?, uri.authority().ok_or(NONE)?);
    if authority.as_str().contains('@') {
        return Err("has a user in it; give username and password to the user of the kubeconfig".to_owned());
    }
    let may_have_path = has_scheme || matches!(uri.path(), "" | "/");
    if authority.host().is_empty() || !proxy::has_port_or_none(authority.as_str()) || !may_have_path {
        return Err(NONE.to_owned());
    }
    let built = Uri::builder().scheme(scheme).authority(authority.as_str()).path_and_query(uri.path()).build();
    built.map_err(|_bad| NONE.to_owned())
}

/// The source of the configuration.
enum ConfigSource {
    Kubeconfig(Box<SelectedContext>),
    Pod,
}

fn find_source(options: &ConnectOptions, process: &ProcessEnv<'_>) -> Result<ConfigSource, ConfigError> {
    let (context, server) = (options.context.as_deref(), options.server.as_deref());
    if let Some(path) = &options.kubeconfig {
        let file = kubeconfig::read(path)?.ok_or_else(|| ConfigError::Kubeconfig {
            path: path.display().to_string(),
            why: "no such file".to_owned(),
        })?;
        return Ok(ConfigSource::Kubeconfig(Box::new(kubeconfig::select_context(&[file], context, server)?)));
    }
    let in_pod = (process.variable)("KUBERNETES_SERVICE_HOST").is_some();
    let named = (process.variable)("KUBECONFIG");
    let home = process.home();
    if takes_service_account(options.prefer, in_pod, has_kubeconfig(named.as_deref(), home.as_deref())) {
        if let Some(context) = &options.context {
            return Err(ConfigError::ContextWithoutKubeconfig { context: context.clone() });
        }
        return Ok(ConfigSource::Pod);
    }
    let mut files = Vec::new();
    for path in paths(named.as_deref(), home.as_deref()) {
        files.extend(kubeconfig::read(&path)?);
    }
    match server {
        // As kubectl --server: an address needs no kubeconfig.
        Some(server) if files.is_empty() && context.is_none() => {
            Ok(ConfigSource::Kubeconfig(Box::new(SelectedContext::from_server(server))))
        }
        _ if files.is_empty() => Err(ConfigError::Kubeconfig {
            path: searched_paths(named.as_deref()),
            why: "no such file; give --kubeconfig, or set KUBECONFIG to where it is".to_owned(),
        }),
        _ => Ok(ConfigSource::Kubeconfig(Box::new(kubeconfig::select_context(&files, context, server)?))),
    }
}

const fn takes_service_account(prefer: Prefer, in_pod: bool, has_kubeconfig: bool) -> bool {
    match prefer {
        Prefer::ServiceAccount => in_pod,
        Prefer::Kubeconfig => in_pod && !has_kubeconfig,
    }
}

/// The files to read, some of which may not exist: those of `$KUBECONFIG`, or else the default one.
fn paths(named: Option<&OsStr>, home: Option<&Path>) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    match named.filter(|named| !named.is_empty()) {
        Some(named) => {
            for path in std::env::split_paths(named).filter(|path| !path.as_os_str().is_empty()) {
                if !paths.contains(&path) {
                    paths.push(path);
                }
            }
        }
        None => paths.extend(home.map(|home| home.join(".kube/config"))),
    }
    paths
}

/// Whether there is a kubeconfig: `$KUBECONFIG` names a file, or the default file exists.
fn has_kubeconfig(named: Option<&OsStr>, home: Option<&Path>) -> bool {
    let names_one = |paths| std::env::split_paths(paths).any(|path| !path.as_os_str().is_empty());
    named.is_some_and(names_one) || home.is_some_and(|home| home.join(".kube/config").exists())
}

/// The places that were searched for a kubeconfig, for error messages.
fn searched_paths(named: Option<&OsStr>) -> String {
    let named = named.filter(|paths| !paths.is_empty());
    named.map_or_else(|| "~/.kube/config".to_owned(), |paths| paths.to_string_lossy().into_owned())
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests;
