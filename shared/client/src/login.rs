//! The credentials of each request: a token in the kubeconfig or in a file, a password, or the output of a login command.
//!
//! Invariant: a login command runs once, and again when its credentials have expired or were refused (401). It runs in its
//! own task, because a login by browser must not be ended by the deadline of one request.

mod command;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::channel::oneshot;
use http::HeaderValue;
use jiff::Timestamp;
use parking_lot::Mutex;
use zeroize::Zeroizing;

use super::cause::LoginError;
use super::kubeconfig::{Cluster, User};
use super::tls::{self, ClientCertificate};
use command::Exec;
use pod_safety_clock::{Env, Mono};

/// How long the content of a token file is cached: half of the time that kubelets leave for it.
const TOKEN_FILE_FOR: Duration = Duration::from_secs(60);

/// The credentials for the API server.
pub(crate) struct Login {
    source: Source,
    certificate_files: Option<CertificateFiles>,
    env: Env,
    /// The client certificate.
    pub(crate) client_certificate: Arc<ClientCertificate>,
}

enum Source {
    /// Anonymous, or only the client certificate.
    None,
    Fixed(HeaderValue),
    File(TokenFile),
    Command(Arc<LoginCommand>),
}

/// The credentials of one request.
#[derive(Clone, Default)]
pub(crate) struct Credentials {
    pub(crate) header: Option<HeaderValue>,
    /// Counts the client certificates and the runs of the login command: connections with older ones are not used again.
    pub(crate) generation: u64,
}

impl Login {
    /// As in kubectl: without TLS (`is_tls`) no credentials are sent, and a login command runs only if there is no token,
    /// password or certificate.
    pub(crate) fn from_user(user: &User, cluster: &Cluster, is_tls: bool, env: &Env) -> Result<Self, LoginError> {
        let client_certificate = Arc::<ClientCertificate>::default();
        let (mut source, mut certificate_files) = (Source::None, None);
        if is_tls {
            if let Some(identity) = &user.identity {
                client_certificate.set(Some(tls::parse_identity(&identity.0, &identity.1).map_err(LoginError)?));
                let held = Mutex::new(ReadCertificate { identity: identity.clone(), generation: 0 });
                certificate_files = user.identity_files.clone().map(|paths| CertificateFiles { paths, held });
            }
            source = Source::from_user(user, cluster, env)?;
        }
        Ok(Self { source, certificate_files, env: env.clone(), client_certificate })
    }

    /// The service account of a pod.
    pub(crate) fn from_token_file(path: PathBuf, env: &Env) -> Result<Self, LoginError> {
        let source = Source::File(TokenFile::open(path, None, env.now())?);
        Ok(Self { source, certificate_files: None, env: env.clone(), client_certificate: Arc::default() })
    }

    /// Runs the login command, if there is one, so that no request has to wait for the user.
    pub(crate) async fn begin(&self) -> Result<(), LoginError> {
        self.credentials().await.map(drop)
    }

    /// The credentials of the next request.
    pub(crate) async fn credentials(&self) -> Result<Credentials, LoginError> {
        let generation = self.certificate_files.as_ref().map_or(0, |files| files.held.lock().generation);
        match &self.source {
            Source::None => Ok(Credentials { header: None, generation }),
            Source::Fixed(header) => Ok(Credentials { header: Some(header.clone()), generation }),
            Source::File(file) => Ok(Credentials { header: Some(file.token(self.env.now())), generation }),
            Source::Command(command) => {
                let cached = command.cached.lock().clone();
                match cached {
                    Some(held) if held.ends.is_none_or(|end| self.env.clock.wall() < end) => Ok(held.credentials),
                    Some(held) => command.renew(held.credentials.generation, &self.env, &self.client_certificate).await,
                    None => command.renew(0, &self.env, &self.client_certificate).await,
                }
            }
        }
    }

    /// The credentials with which the same request is sent again after `refused` was answered with 401; `None`: there are
    /// no others.
    pub(crate) async fn refresh_after(&self, refused: &Credentials) -> Result<Option<Credentials>, LoginError> {
        if let Some(files) = &self.certificate_files {
            files.read_again(&self.client_certificate);
        }
        if let Source::File(file) = &self.source {
            file.forget();
        }
        let credentials = match &self.source {
            Source::Command(command) => command.renew(refused.generation, &self.env, &self.client_certificate).await?,
            Source::None | Source::Fixed(_) | Source::File(_) => self.credentials().await?,
        };
        Ok((credentials.header != refused.header || credentials.generation != refused.generation)
            .then_some(credentials))
    }
}

impl Source {
    fn from_user(user: &User, cluster: &Cluster, env: &Env) -> Result<Self, LoginError> {
        if let Some((name, password)) = &user.basic {
            let both = Zeroizing::new(format!("{name}:{password}"));
            return header("Basic ", &STANDARD.encode(both.as_bytes()), "username and password").map(Self::Fixed);
        }
        let inline = user.token.as_deref().map(|token| bearer(token, "token")).transpose()?;
        if let Some(path) = &user.token_file {
            return TokenFile::open(path.clone(), inline, env.now()).map(Self::File);
        }
        if let Some(inline) = inline {
            return Ok(Self::Fixed(inline));
        }
        match &user.command {
            Some(command) if user.identity.is_none() => {
                let (exec, held) = (Exec::new(command, cluster), Mutex::default());
                Ok(Self::Command(Arc::new(LoginCommand { exec, cached: held, runs: futures::lock::Mutex::new(()) })))
            }
            _ => Ok(Self::None),
        }
    }
}

/// The header for a token. Editors and shells end a file with a line break, which is not part of the token.
fn bearer(token: &str, of: &str) -> Result<HeaderValue, LoginError> {
    match token.trim() {
        "" => Err(LoginError(format!("{of} is empty"))),
        token => header("Bearer ", token, of),
    }
}

fn header(kind: &str, value: &str, of: &str) -> Result<HeaderValue, LoginError> {
    let text = Zeroizing::new(format!("{kind}{value}"));
    let mut header = HeaderValue::from_bytes(text.as_bytes()).map_err(|_bad| {
        LoginError(format!("{of} has a line break or another character that no request may have; write it anew"))
    })?;
    header.set_sensitive(true);
    Ok(header)
}

/// A file with a token that another program renews.
struct TokenFile {
    path: PathBuf,
    /// The last token that was read, and until when it is used.
    held: Mutex<(HeaderValue, Option<Mono>)>,
}

impl TokenFile {
    /// `inline` is the token to use until the file can be read.
    fn open(path: PathBuf, inline: Option<HeaderValue>, now: Mono) -> Result<Self, LoginError> {
        let first = match (Self::read(&path), inline) {
            (Ok(read), _) => read,
            (Err(_), Some(inline)) => inline,
            (Err(why), None) => return Err(why),
        };
        Ok(Self { path, held: Mutex::new((first, Some(now + TOKEN_FILE_FOR))) })
    }

    fn read(path: &PathBuf) -> Result<HeaderValue, LoginError> {
        let of = format!("the token file {}", path.display());
        let text = std::fs::read_to_string(path).map(Zeroizing::new);
        let text =
            text.map_err(|error| LoginError(format!("{of} cannot be read: {}", super::cause::io_message(&error))))?;
        bearer(&text, &of)
    }

    /// The token. If the file was deleted, the last one is still used (kubernetes/kubernetes#68164).
    fn token(&self, now: Mono) -> HeaderValue {
        let mut held = self.held.lock();
        if held.1.is_none_or(|until| now >= until) {
            held.1 = Some(now + TOKEN_FILE_FOR);
            if let Ok(read) = Self::read(&self.path) {
                held.0 = read;
            }
        }
        held.0.clone()
    }

    fn forget(&self) {
        self.held.lock().1 = None;
    }
}

/// The files of the client certificate and its key. client-go reads them again, too: another program renews them before
/// the certificate expires.
struct CertificateFiles {
    paths: (PathBuf, PathBuf),
    held: Mutex<ReadCertificate>,
}

/// The certificate and the key that were read last, and how often they were new.
struct ReadCertificate {
    identity: (Vec<u8>, Vec<u8>),
    generation: u64,
}

impl CertificateFiles {
    /// What cannot be used is not taken: both files may not be written yet.
    fn read_again(&self, certificate: &ClientCertificate) {
        let (Ok(certificates), Ok(key)) = (std::fs::read(&self.paths.0), std::fs::read(&self.paths.1)) else { return };
        let (read, mut held) = ((certificates, key), self.held.lock());
        if read != held.identity
            && let Ok(identity) = tls::parse_identity(&read.0, &read.1)
        {
            certificate.set(Some(identity));
            *held = ReadCertificate { identity: read, generation: held.generation + 1 };
        }
    }
}

/// A login command, and the credentials that it printed.
struct LoginCommand {
    exec: Exec,
    cached: Mutex<Option<CachedCredentials>>,
    /// One run at a time: requests that come meanwhile use its result.
    runs: futures::lock::Mutex<()>,
}

#[derive(Clone)]
struct CachedCredentials {
    credentials: Credentials,
    ends: Option<Timestamp>,
}

impl LoginCommand {
    /// The credentials after run number `old`: another request may have run the command already.
    async fn renew(
        self: &Arc<Self>,
        old: u64,
        env: &Env,
        certificate: &Arc<ClientCertificate>,
    ) -> Result<Credentials, LoginError> {
        let (sender, receiver) = oneshot::channel();
        let (this, certificate, own) = (Arc::clone(self), Arc::clone(certificate), env.clone());
        let work = async move {
            let _one = this.runs.lock().await;
            let cached = this.cached.lock().as_ref().map(|held| held.credentials.clone());
            let credentials = match cached {
                Some(given) if given.generation != old => Ok(given),
                _ => this.run(old, &own, &certificate).await,
            };
            drop(sender.send(credentials));
        };
        env.spawner.spawn("login command", Box::pin(work));
        receiver.await.unwrap_or_else(|_ended| Err(LoginError("this process ends".to_owned())))
    }

    async fn run(&self, old: u64, env: &Env, certificate: &ClientCertificate) -> Result<Credentials, LoginError> {
        let output = self.exec.run(env).await?;
        let header = output.token.as_deref().map(|token| bearer(token, &format!("the token of {}", self.exec)));
        let identity = output.identity.as_ref().map(|(certificates, key)| {
            tls::parse_identity(certificates.as_bytes(), key.as_bytes())
                .map_err(|why| LoginError(format!("what {} gave cannot be used: {why}", self.exec)))
        });
        let (header, identity) = (header.transpose()?, identity.transpose()?);
        certificate.set(identity);
        let credentials = Credentials { header, generation: old + 1 };
        *self.cached.lock() = Some(CachedCredentials { credentials: credentials.clone(), ends: output.ends });
        Ok(credentials)
    }
}
