//! Kubeconfigs as kubectl reads them: `ClientConfigLoadingRules`, the merge, and the errors of client-go.

mod entry;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

pub(crate) use entry::{ActAs, Cluster, Command, Interactive, User};
use entry::{Entry, EntryError};

/// Why a kubeconfig cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InvalidKubeconfig {
    /// The file, or the files.
    pub(crate) path: String,
    pub(crate) why: String,
}

/// The entries that a context of the kubeconfig selects.
#[derive(Debug)]
pub(crate) struct SelectedContext {
    pub(crate) context: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) cluster: Cluster,
    pub(crate) user: User,
    pub(crate) cluster_at: Location,
    pub(crate) user_at: Location,
}

/// The location of an entry.
#[derive(Clone, Debug)]
pub(crate) struct Location {
    path: String,
    place: String,
}

impl Location {
    pub(crate) fn invalid(&self, why: &str) -> InvalidKubeconfig {
        let why = if self.place.is_empty() { why.to_owned() } else { format!("{}: {why}", self.place) };
        InvalidKubeconfig { path: self.path.clone(), why }
    }
}

impl SelectedContext {
    /// A configuration with only an address.
    pub(crate) fn from_server(server: &str) -> Self {
        let nowhere = Location { path: "--master".to_owned(), place: String::new() };
        let (cluster_at, user_at) = (nowhere.clone(), nowhere);
        let cluster = Cluster::from_server(server);
        Self { context: None, namespace: None, cluster, user: User::default(), cluster_at, user_at }
    }
}

/// A file that was read.
#[derive(Debug)]
pub(crate) struct File {
    path: PathBuf,
    document: Map<String, Value>,
}

/// Reads one file; `None`: it does not exist.
pub(crate) fn read(path: &Path) -> Result<Option<File>, InvalidKubeconfig> {
    let unfit = |why: String| InvalidKubeconfig { path: path.display().to_string(), why };
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unfit(super::cause::io_message(&error))),
    };
    let document = parse(&bytes).map_err(unfit)?;
    Ok(Some(File { path: path.to_owned(), document }))
}

fn parse(bytes: &[u8]) -> Result<Map<String, Value>, String> {
    let text = text(bytes)?;
    let not_one = |why: &str| format!("it is not the YAML of a kubeconfig: {why}");
    let options = serde_saphyr::options! { duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins };
    // JSON may be indented by tabs, which YAML refuses.
    let read = serde_json::from_str(&text).or_else(|_not_json| {
        let mut documents = serde_saphyr::from_multiple_with_options::<Value>(&text, options)
            .map_err(|error| not_one(&super::cause::first_line(&error.to_string())))?;
        Ok::<Value, String>(if documents.is_empty() { Value::Null } else { documents.swap_remove(0) })
    })?;
    match read {
        Value::Null => Ok(Map::new()),
        Value::Object(document) => Ok(document),
        _ => Err(not_one("it is no map with clusters, contexts and users")),
    }
}

/// Decodes a file: UTF-8, or UTF-16 with a byte order mark.
fn text(bytes: &[u8]) -> Result<String, String> {
    let units = |of: fn([u8; 2]) -> u16| {
        let pairs = bytes[2..].chunks_exact(2).map(|pair| of([pair[0], pair[1]]));
        String::from_utf16(&pairs.collect::<Vec<_>>())
    };
    match bytes {
        [0xFF, 0xFE, ..] => units(u16::from_le_bytes).map_err(|_not| "it is not UTF-16".to_owned()),
        [0xFE, 0xFF, ..] => units(u16::from_be_bytes).map_err(|_not| "it is not UTF-16".to_owned()),
        [0xEF, 0xBB, 0xBF, rest @ ..] => as_utf8(rest),
        _ => as_utf8(bytes),
    }
}

fn as_utf8(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|_not| "it is not text in UTF-8".to_owned())
}

/// Selects the context `requested`, or else the current context of `files`. If several files have an entry of one name, the
/// first one counts.
pub(crate) fn select_context(
    files: &[File],
    requested: Option<&str>,
    server: Option<&str>,
) -> Result<SelectedContext, InvalidKubeconfig> {
    let paths: Vec<_> = files.iter().map(|file| file.path.display().to_string()).collect();
    let path = paths.join(":");
    let unfit = |why: String| InvalidKubeconfig { path: path.clone(), why };
    for file in files {
        let doubled = ["clusters", "contexts", "users"].iter().find_map(|list| find_duplicate(file, list));
        if let Some(why) = doubled {
            return Err(InvalidKubeconfig { path: file.path.display().to_string(), why });
        }
    }
    let current = || files.iter().find_map(|file| text_field(&file.document, "current-context"));
    let Some(name) = requested.filter(|name| !name.is_empty()).or_else(current) else {
        return Err(unfit(format!("it has no current-context; give --context{}", list_contexts(files))));
    };
    let Some(context) = find_entry(files, "contexts", "context", name) else {
        return Err(unfit(format!("it has no context {name}{}", list_contexts(files))));
    };
    let at_context = |why: EntryError| context.at.invalid(&why.0);
    let text = |field| context.text(field).map_err(at_context);
    let (cluster, user, namespace) = (text("cluster")?, text("user")?, text("namespace")?.map(str::to_owned));
    let nowhere = || Location { path: path.clone(), place: String::new() };
    let (cluster, cluster_at) = match cluster.map(|name| (name, find_entry(files, "clusters", "cluster", name))) {
        Some((_, Some(entry))) => (Cluster::read(&entry, server).map_err(|why| entry.at.invalid(&why.0))?, entry.at),
        _ if server.is_some() => (Cluster::from_server(server.unwrap_or_default()), nowhere()),
        Some((cluster, None)) => {
            return Err(unfit(format!("its context {name} names the cluster {cluster}, which it does not have")));
        }
        None => return Err(context.at.invalid("it names no cluster")),
    };
    // As in kubectl, a user that does not exist is anonymous.
    let (user, user_at) = match user.and_then(|user| find_entry(files, "users", "user", user)) {
        Some(entry) => (User::read(&entry).map_err(|why| entry.at.invalid(&why.0))?, entry.at),
        None => (User::default(), nowhere()),
    };
    Ok(SelectedContext { context: Some(name.to_owned()), namespace, cluster, user, cluster_at, user_at })
}

/// A name that a list contains twice: kubectl refuses such a file.
fn find_duplicate(file: &File, list: &str) -> Option<String> {
    let mut names: Vec<_> = entries(file, list).filter_map(|entry| text_field(entry, "name")).collect();
    names.sort_unstable();
    let doubled = names.windows(2).find(|pair| pair[0] == pair[1])?;
    Some(format!("its {list} have the name {} twice; remove one", doubled[0]))
}

/// The available contexts, for error messages.
fn list_contexts(files: &[File]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in files.iter().flat_map(|file| entries(file, "contexts")).filter_map(|one| text_field(one, "name")) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        "; it has no contexts".to_owned()
    } else {
        format!("; its contexts are {}", names.join(", "))
    }
}

fn entries<'f>(file: &'f File, list: &str) -> impl Iterator<Item = &'f Map<String, Value>> {
    file.document.get(list).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object)
}

fn text_field<'m>(map: &'m Map<String, Value>, field: &str) -> Option<&'m str> {
    map.get(field).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// The entry of this name in the first file that has one.
fn find_entry<'f>(files: &'f [File], list: &'static str, field: &'static str, name: &str) -> Option<Entry<'f>> {
    files.iter().find_map(|file| {
        let entry = entries(file, list).find(|entry| text_field(entry, "name") == Some(name))?;
        Some(Entry::new(&file.path, format!("{list}[{name}]"), entry.get(field)))
    })
}
