//! One entry of a kubeconfig, field by field, with the name of the field in each error.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::Location;

/// Why an entry cannot be used.
#[derive(Debug)]
pub(super) struct EntryError(pub(super) String);

impl EntryError {
    pub(super) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

/// An entry and its location.
#[derive(Debug)]
pub(super) struct Entry<'f> {
    file: &'f Path,
    pub(super) at: Location,
    fields: Option<&'f Map<String, Value>>,
}

impl<'f> Entry<'f> {
    pub(super) fn new(file: &'f Path, place: String, value: Option<&'f Value>) -> Self {
        let at = Location { path: file.display().to_string(), place };
        Self { file, at, fields: value.and_then(Value::as_object) }
    }

    fn get(&self, field: &str) -> Option<&'f Value> {
        self.fields?.get(field).filter(|value| !value.is_null())
    }

    /// A string field; `None` if it is empty.
    pub(super) fn text(&self, field: &str) -> Result<Option<&'f str>, EntryError> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(&**text).filter(|text| !text.is_empty())),
            Some(_) => Err(EntryError(format!("{field} is no text; put it in quotes"))),
        }
    }

    fn flag(&self, field: &str) -> Result<bool, EntryError> {
        match self.get(field) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            // Strings that are booleans in YAML 1.1, as kubectl reads it.
            Some(Value::String(word)) => match &*word.to_ascii_lowercase() {
                "yes" | "y" | "on" | "true" => Ok(true),
                "no" | "n" | "off" | "false" | "" => Ok(false),
                _ => Err(EntryError(format!("{field} is {word:?}; give true or false"))),
            },
            Some(_) => Err(EntryError(format!("{field} is neither true nor false"))),
        }
    }

    fn texts(&self, field: &str) -> Result<Vec<String>, EntryError> {
        let not_texts = || EntryError(format!("{field} is no list of texts"));
        match self.get(field) {
            None => Ok(Vec::new()),
            Some(Value::Array(list)) => {
                list.iter().map(|one| one.as_str().map(str::to_owned).ok_or_else(not_texts)).collect()
            }
            Some(_) => Err(not_texts()),
        }
    }

    /// A path field. A relative path starts at the folder of its kubeconfig.
    fn path(&self, field: &str) -> Result<Option<PathBuf>, EntryError> {
        let folder = self.file.parent().unwrap_or(Path::new(""));
        Ok(self.text(field)?.map(|path| folder.join(path)))
    }

    /// The content of `FIELD-data`, or else of the file of FIELD. As in kubectl, not both may be set.
    fn data(&self, field: &str) -> Result<Option<Vec<u8>>, EntryError> {
        let (path, data) = (self.path(field)?, self.text(&format!("{field}-data"))?);
        match (path, data) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err(EntryError(format!("{field} and {field}-data are both given; remove one"))),
            (None, Some(data)) => {
                // YAML keeps the line breaks of a block, and Go's base64 decoder ignores them.
                let lines: String = data.split_ascii_whitespace().collect();
                STANDARD
                    .decode(lines)
                    .map(Some)
                    .map_err(|why| EntryError(format!("{field}-data is not base64: {}", explain_base64(&why))))
            }
            (Some(path), None) => read_file(field, &path).map(Some),
        }
    }
}

fn explain_base64(why: &base64::DecodeError) -> String {
    match why {
        base64::DecodeError::InvalidByte(at, byte) => {
            format!("{:?} at its character {}", char::from(*byte), at + 1)
        }
        base64::DecodeError::InvalidLength(_) => "a part of it is missing".to_owned(),
        base64::DecodeError::InvalidLastSymbol(..) | base64::DecodeError::InvalidPadding => {
            "its end is not that of base64".to_owned()
        }
    }
}

fn read_file(field: &str, path: &Path) -> Result<Vec<u8>, EntryError> {
    std::fs::read(path).map_err(|error| {
        EntryError(format!("{field}: the file {} cannot be read: {}", path.display(), crate::cause::io_message(&error)))
    })
}

/// The address of the API server, and how its certificate is verified.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cluster {
    pub(crate) server: String,
    pub(crate) authority: Option<Vec<u8>>,
    pub(crate) insecure: bool,
    pub(crate) server_name: Option<String>,
    pub(crate) proxy: Option<String>,
    /// The configuration for login commands: `extensions[client.authentication.k8s.io/exec]`.
    pub(crate) exec_config: Option<Value>,
}

impl Cluster {
    /// A cluster with only an address.
    pub(crate) fn from_server(server: &str) -> Self {
        Self { server: server.to_owned(), ..Self::default() }
    }

    /// `server` replaces the address of the entry. The entry's `tls-server-name` is then ignored, because it is for the
    /// other address.
    pub(super) fn read(entry: &Entry<'_>, server: Option<&str>) -> Result<Self, EntryError> {
        let own = entry.text("server")?;
        let Some(address) = server.or(own) else { return Err(EntryError::new("it has no server")) };
        let authority = entry.data("certificate-authority")?;
        let insecure = entry.flag("insecure-skip-tls-verify")?;
        if insecure && authority.as_ref().is_some_and(|pem| !pem.is_empty()) {
            return Err(EntryError::new(
                "certificate-authority and insecure-skip-tls-verify are both given, which kubectl refuses; remove one",
            ));
        }
        let extensions = entry.get("extensions").and_then(Value::as_array);
        let of_exec = |one: &&Value| one["name"] == "client.authentication.k8s.io/exec";
        let exec_config = extensions.and_then(|all| all.iter().find(of_exec)).map(|one| one["extension"].clone());
        Ok(Self {
            server: address.to_owned(),
            authority,
            insecure,
            server_name: entry.text("tls-server-name")?.filter(|_| server.is_none()).map(str::to_owned),
            proxy: entry.text("proxy-url")?.map(str::to_owned),
            exec_config,
        })
    }
}

/// The credentials for the API server.
#[derive(Clone, Default)]
pub(crate) struct User {
    pub(crate) basic: Option<(String, String)>,
    pub(crate) token: Option<String>,
    pub(crate) token_file: Option<PathBuf>,
    /// Certificates and key, in PEM.
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The files of both, if neither is in the kubeconfig.
    pub(crate) identity_files: Option<(PathBuf, PathBuf)>,
    pub(crate) command: Option<Command>,
    pub(crate) act_as: ActAs,
}

/// The user to impersonate; no impersonation if `user` is empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct ActAs {
    pub(crate) user: String,
    pub(crate) uid: Option<String>,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: Vec<(String, String)>,
}

impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("User").finish_non_exhaustive()
    }
}

/// Whether a login command may prompt the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interactive {
    Never,
    IfAvailable,
    Always,
}

/// A login command.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) path: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) variables: Vec<(String, String)>,
    pub(crate) version: String,
    pub(crate) interactive: Interactive,
    pub(crate) with_cluster: bool,
    pub(crate) hint: Option<String>,
}

impl User {
    pub(super) fn read(entry: &Entry<'_>) -> Result<Self, EntryError> {
        let (name, password) = (entry.text("username")?, entry.text("password")?);
        let basic = (name.is_some() || password.is_some())
            .then(|| (name.unwrap_or_default().to_owned(), password.unwrap_or_default().to_owned()));
        let mut token = entry.text("token")?.map(str::to_owned);
        if basic.is_some() && token.is_some() {
            return Err(EntryError::new("token and username are both given; remove one"));
        }
        let has_certificate = entry.text("client-certificate")?.or(entry.text("client-certificate-data")?).is_some();
        let identity = if has_certificate {
            let certificates = entry.data("client-certificate")?.unwrap_or_default();
            let key = entry.data("client-key")?;
            let key = key.ok_or_else(|| EntryError::new("client-certificate is given, and no client-key"))?;
            Some((certificates, key))
        } else {
            None
        };
        let command = match entry.get("exec") {
            Some(exec) => Some(Command::read(&Entry::new(entry.file, String::new(), Some(exec)))?),
            None => None,
        };
        match entry.get("auth-provider") {
            Some(_) if command.is_some() => {
                return Err(EntryError::new("exec and auth-provider are both given; remove one"));
            }
            Some(provider) => token = token.or(Some(of_provider(provider)?)),
            None => {}
        }
        let token_file = entry.path("tokenFile")?;
        let identity_files = entry.path("client-certificate")?.zip(entry.path("client-key")?);
        Ok(Self { basic, token, token_file, identity, identity_files, command, act_as: act_as(entry)? })
    }
}

/// The token of kubectl's last login. This program does not renew it.
fn of_provider(provider: &Value) -> Result<String, EntryError> {
    match provider["name"].as_str().unwrap_or_default() {
        "oidc" => provider["config"]["id-token"].as_str().map(str::to_owned).ok_or_else(|| {
            EntryError::new("auth-provider oidc has no id-token; log in by kubectl first, or use exec with kubelogin")
        }),
        other => Err(EntryError::new(format!(
            "auth-provider {other} is no longer part of kubectl; use exec with its login command"
        ))),
    }
}

fn act_as(entry: &Entry<'_>) -> Result<ActAs, EntryError> {
    let (uid, groups) = (entry.text("as-uid")?.map(str::to_owned), entry.texts("as-groups")?);
    let mut extra = Vec::new();
    for (key, values) in entry.get("as-user-extra").and_then(Value::as_object).into_iter().flatten() {
        let Some(values) = values.as_array() else {
            return Err(EntryError::new("as-user-extra has values that are no lists"));
        };
        for value in values {
            let value = value.as_str().ok_or_else(|| EntryError::new("as-user-extra has a value that is no text"))?;
            extra.push((key.clone(), value.to_owned()));
        }
    }
    match entry.text("as")? {
        Some(user) => Ok(ActAs { user: user.to_owned(), uid, groups, extra }),
        None if uid.is_none() && groups.is_empty() && extra.is_empty() => Ok(ActAs::default()),
        None => Err(EntryError::new("as-uid, as-groups and as-user-extra need as")),
    }
}

impl Command {
    fn read(entry: &Entry<'_>) -> Result<Self, EntryError> {
        let Some(command) = entry.text("command")? else {
            return Err(EntryError::new("exec has no command"));
        };
        let Some(version) = entry.text("apiVersion")? else {
            return Err(EntryError::new("exec has no apiVersion"));
        };
        let beta = match version {
            "client.authentication.k8s.io/v1" => false,
            "client.authentication.k8s.io/v1beta1" => true,
            _ => {
                return Err(EntryError::new(format!(
                    "exec has the apiVersion {version}; allowed are client.authentication.k8s.io/v1 and …/v1beta1"
                )));
            }
        };
        let interactive = match entry.text("interactiveMode")? {
            Some("Never") => Interactive::Never,
            Some("IfAvailable") => Interactive::IfAvailable,
            Some("Always") => Interactive::Always,
            None if beta => Interactive::IfAvailable,
            other => {
                let given = other.unwrap_or("nothing");
                return Err(EntryError::new(format!(
                    "exec has {given} as its interactiveMode; give Never, IfAvailable or Always"
                )));
            }
        };
        let mut variables = Vec::new();
        for one in entry.get("env").and_then(Value::as_array).into_iter().flatten() {
            let name = one["name"].as_str().filter(|name| is_variable(name));
            let name = name.ok_or_else(|| EntryError::new("exec has an env without a usable name"))?;
            variables.push((name.to_owned(), one["value"].as_str().unwrap_or_default().to_owned()));
        }
        // As in a shell, a name without a folder is searched in PATH.
        let path = match entry.path("command")? {
            Some(path) if command.contains('/') => path.components().collect(),
            _ => PathBuf::from(command),
        };
        Ok(Self {
            path,
            arguments: entry.texts("args")?,
            variables,
            version: version.to_owned(),
            interactive,
            with_cluster: entry.flag("provideClusterInfo")?,
            hint: entry.text("installHint")?.map(str::to_owned),
        })
    }
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}
