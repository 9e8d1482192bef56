//! A service: requests with a login, redirections, and refusals as errors.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, LOCATION};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use pod_safety_clock::Env;
use pod_safety_transport::DeviceError;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};
use zeroize::Zeroizing;

use super::connection::Connection;
use super::parameters::{Auth, Login, Parameters, ROOT};
use super::refusal::Refusal;
use super::{resource_path, trust};

const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";
const TOKEN: HeaderName = HeaderName::from_static("x-auth-token");
const VERSION: HeaderName = HeaderName::from_static("odata-version");

/// `/redfish/v1` → `/redfish/v1/`, and one more for a service that redirects again.
const READ_REDIRECTIONS: usize = 2;

/// A service that redirects a write has not executed it yet.
const WRITE_REDIRECTIONS: usize = 1;

/// A service, with a login.
pub(super) struct Service<'a> {
    connection: Connection<'a>,
    parameters: &'a Parameters,
    /// Sent with every request.
    credential: Option<(HeaderName, HeaderValue)>,
    /// The sessions to end, the last one first.
    sessions: Vec<String>,
    /// An expired session was replaced by a new one.
    renewed: bool,
}

impl<'a> Service<'a> {
    /// Sends nothing yet.
    pub(super) fn new(env: &'a Env, parameters: &'a Parameters) -> Result<Self, DeviceError> {
        let tls = trust::config(&parameters.trust).map_err(|said| DeviceError::Tls { said })?;
        let connection = Connection::new(env, &parameters.authority, tls);
        Ok(Self { connection, parameters, credential: None, sessions: Vec::new(), renewed: false })
    }

    /// Logs in, if that takes a request of its own.
    pub(super) async fn open(&mut self) -> Result<(), DeviceError> {
        let parameters = self.parameters;
        match &parameters.login {
            None => Ok(()),
            Some(login) if login.auth == Auth::Basic => {
                self.credential = Some(basic(login)?);
                Ok(())
            }
            Some(login) => self.log_in(login).await,
        }
    }

    /// Ends the sessions. Errors are ignored, as there is an answer already.
    pub(super) async fn close(mut self) {
        // The last request may have been abandoned.
        if !self.connection.is_idle() {
            self.connection.reset();
        }
        while let Some(session) = self.sessions.pop() {
            let _ = self.send(&Method::DELETE, &session, None).await;
        }
    }

    /// Reads the resource at `path`.
    pub(super) async fn get<T: DeserializeOwned>(&mut self, path: &str) -> Result<T, DeviceError> {
        let (path, response) = match self.exchange(&Method::GET, path, None, READ_REDIRECTIONS).await {
            // A service may close a connection that it had kept open. A read can be repeated.
            Err(DeviceError::Unreachable { .. }) if self.connection.has_answered() => {
                self.connection.reset();
                self.exchange(&Method::GET, path, None, READ_REDIRECTIONS).await?
            }
            answer => answer?,
        };
        check_response(&path, &response)?;
        if response.body().trim_ascii().is_empty() {
            let said = format!("{path}: {}: an empty answer", response.status());
            return Err(DeviceError::Garbage { said });
        }
        object(response.body()).map_err(|error| DeviceError::Garbage { said: format!("{path}: {error}") })
    }

    /// Posts an action to `path`. Sent once.
    pub(super) async fn post(&mut self, path: &str, body: &Json) -> Result<(), DeviceError> {
        let (path, response) = self.exchange(&Method::POST, path, Some(body), WRITE_REDIRECTIONS).await?;
        check_response(&path, &response)
    }

    /// The path below `/redfish/` to which a link of this service points, if it is within the service.
    pub(super) fn own_path(&self, link: &str) -> Option<String> {
        let is_whole = link.starts_with('/') || link.contains("://");
        resource_path::same_service_path(link, ROOT, &self.parameters.authority).filter(|_| is_whole)
    }

    async fn log_in(&mut self, login: &Login) -> Result<(), DeviceError> {
        self.credential = None;
        let body = json!({ "UserName": login.username, "Password": login.password.reveal() });
        let (path, response) = Box::pin(self.follow(&Method::POST, SESSIONS, Some(&body), WRITE_REDIRECTIONS)).await?;
        check_response(&path, &response)?;
        let Some(token) = response.headers().get(TOKEN) else {
            return Err(DeviceError::Garbage { said: "a session without a token".to_owned() });
        };
        let mut token = token.clone();
        token.set_sensitive(true);
        self.credential = Some((TOKEN, token));
        self.sessions.extend(session_path(&path, &response));
        Ok(())
    }

    /// One request, through redirections; repeated once if the session expired: a 401 means that it was not executed.
    async fn exchange(
        &mut self,
        method: &Method,
        path: &str,
        body: Option<&Json>,
        redirections: usize,
    ) -> Result<(String, Response<Bytes>), DeviceError> {
        let answer = self.follow(method, path, body, redirections).await?;
        let ran_out = answer.1.status() == StatusCode::UNAUTHORIZED && !self.sessions.is_empty();
        let parameters = self.parameters;
        match &parameters.login {
            Some(login) if ran_out && !self.renewed => {
                self.renewed = true;
                self.log_in(login).await?;
                self.follow(method, path, body, redirections).await
            }
            _ => Ok(answer),
        }
    }

    /// One request, with its redirections within the service.
    async fn follow(
        &mut self,
        method: &Method,
        path: &str,
        body: Option<&Json>,
        redirections: usize,
    ) -> Result<(String, Response<Bytes>), DeviceError> {
        let mut path = path.to_owned();
        for _ in 0..=redirections {
            let response = self.send(method, &path, body).await?;
            if !is_redirection(response.status(), method) {
                return Ok((path, response));
            }
            path = self.elsewhere(&path, &response)?;
        }
        Err(DeviceError::Failed { said: format!("{path} leads in circles") })
    }

    async fn send(&mut self, method: &Method, path: &str, body: Option<&Json>) -> Result<Response<Bytes>, DeviceError> {
        let mut request = Request::builder().method(method).uri(path);
        request = request.header(HOST, self.parameters.authority.as_str());
        request = request.header(ACCEPT, "application/json").header(VERSION, "4.0");
        if let Some((name, value)) = &self.credential {
            request = request.header(name, value);
        }
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let body = body.map(Json::to_string).unwrap_or_default();
        let request = request.body(Full::new(Bytes::from(body)));
        let request = request.map_err(|error| DeviceError::Garbage { said: format!("{path}: {error}") })?;
        self.connection.send(request).await
    }

    /// The target of a redirection, if it is within this service: no other host gets the login.
    fn elsewhere(&self, path: &str, response: &Response<Bytes>) -> Result<String, DeviceError> {
        let location = location(response).unwrap_or_default();
        let followed = resource_path::same_service_path(location, path, &self.parameters.authority);
        let said = || format!("{path} points to {location:?}, which is not followed; correct the address");
        followed.filter(|to| to != path).ok_or_else(|| DeviceError::Failed { said: said() })
    }
}

fn location(response: &Response<Bytes>) -> Option<&str> {
    response.headers().get(LOCATION)?.to_str().ok()
}

/// Whether the request must be repeated elsewhere: after a 303 it was executed, and only the answer is there.
fn is_redirection(status: StatusCode, method: &Method) -> bool {
    match status {
        StatusCode::MOVED_PERMANENTLY
        | StatusCode::FOUND
        | StatusCode::TEMPORARY_REDIRECT
        | StatusCode::PERMANENT_REDIRECT => true,
        StatusCode::SEE_OTHER => *method == Method::GET,
        _ => false,
    }
}

/// The session that a login created: from its Location, or else from the body. Whatever host they name, it is ended
/// at the service that created it.
fn session_path(path: &str, response: &Response<Bytes>) -> Option<String> {
    let body: Option<Named> = object(response.body()).ok();
    let named = [location(response).map(str::to_owned), body.and_then(|body| body.id)];
    let mut paths = named.into_iter().flatten().filter_map(|one| resource_path::service_path(&one, path));
    let is_session = |one: &String| one.contains("/Sessions/") && !one.ends_with("/Sessions/");
    paths.find(is_session)
}

#[derive(Deserialize)]
struct Named {
    #[serde(rename = "@odata.id")]
    id: Option<String>,
}

/// A refusal as an error, with the service's message.
fn check_response(path: &str, response: &Response<Bytes>) -> Result<(), DeviceError> {
    let status = response.status();
    if status.is_success() || status == StatusCode::SEE_OTHER {
        return Ok(());
    }
    let reason = object::<Refusal>(response.body()).unwrap_or_default().text();
    let said = format!("{path}: {status}: {reason}").trim_end_matches([' ', ':']).to_owned();
    Err(match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => DeviceError::Login { said },
        StatusCode::TOO_MANY_REQUESTS => DeviceError::Throttled { said },
        _ => DeviceError::Failed { said },
    })
}

/// Decodes an object. From a list serde would read the fields by their order.
pub(super) fn object<T: DeserializeOwned>(body: &[u8]) -> Result<T, serde_json::Error> {
    if body.trim_ascii_start().first() == Some(&b'[') {
        return Err(serde::de::Error::custom("a list instead of an object"));
    }
    serde_json::from_slice(body)
}

fn basic(login: &Login) -> Result<(HeaderName, HeaderValue), DeviceError> {
    let pair = Zeroizing::new(format!("{}:{}", login.username, login.password.reveal()));
    let text = Zeroizing::new(format!("Basic {}", BASE64.encode(pair.as_bytes())));
    let wrong = |_error| DeviceError::Login { said: "the login cannot be sent as a header".to_owned() };
    let mut value = HeaderValue::from_str(&text).map_err(wrong)?;
    value.set_sensitive(true);
    Ok((AUTHORIZATION, value))
}
