//! A service: requests with a login, and its refusals as errors.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, LOCATION};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use pod_safety_clock::Env;
use pod_safety_transport::DeviceError;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};
use zeroize::Zeroizing;

use super::link::Link;
use super::parameters::{Auth, Login, Parameters};
use super::trust;

const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";
const TOKEN: HeaderName = HeaderName::from_static("x-auth-token");
const VERSION: HeaderName = HeaderName::from_static("odata-version");

/// `/redfish/v1` → `/redfish/v1/`, and one more for an odd service.
const REDIRECTIONS: usize = 2;

/// A service that we may speak to.
pub(super) struct Service<'a> {
    link: Link<'a>,
    parameters: &'a Parameters,
    /// Goes with every request.
    credential: Option<(HeaderName, HeaderValue)>,
    /// To be ended.
    session: Option<String>,
}

impl<'a> Service<'a> {
    /// Logs in, where that takes a request of its own.
    pub(super) async fn open(env: &'a Env, parameters: &'a Parameters) -> Result<Self, DeviceError> {
        let tls = trust::config(&parameters.trust).map_err(|said| DeviceError::Tls { said })?;
        let link = Link::new(env, &parameters.authority, tls);
        let mut service = Self { link, parameters, credential: None, session: None };
        match &parameters.login {
            None => {}
            Some(login) if login.by == Auth::Basic => service.credential = Some(basic(login)?),
            Some(login) => service.log_in(login).await?,
        }
        Ok(service)
    }

    /// Ends the session, if there is one. Who cannot has an answer all the same.
    pub(super) async fn close(mut self) {
        if let Some(session) = self.session.take() {
            let _ = self.send(Method::DELETE, &session, None).await;
        }
    }

    /// What stands at `path`.
    pub(super) async fn get<T: DeserializeOwned>(&mut self, path: &str) -> Result<T, DeviceError> {
        let mut path = path.to_owned();
        for _ in 0..=REDIRECTIONS {
            let response = self.send(Method::GET, &path, None).await?;
            if response.status().is_redirection() {
                path = self.elsewhere(&response)?;
                continue;
            }
            self.accepted(&path, &response)?;
            return object(response.body())
                .map_err(|error| DeviceError::Garbage { said: format!("{path}: {error}") });
        }
        Err(DeviceError::Failed { said: format!("{path} leads in circles") })
    }

    /// Tells `path` to do something. Sent once.
    pub(super) async fn post(&mut self, path: &str, body: &Json) -> Result<(), DeviceError> {
        let response = self.send(Method::POST, path, Some(body)).await?;
        self.accepted(path, &response)
    }

    async fn log_in(&mut self, login: &Login) -> Result<(), DeviceError> {
        let body = json!({ "UserName": login.username, "Password": login.password.reveal() });
        let response = self.send(Method::POST, SESSIONS, Some(&body)).await?;
        self.accepted(SESSIONS, &response)?;
        let Some(token) = response.headers().get(TOKEN) else {
            return Err(DeviceError::Garbage { said: "a session without a token".to_owned() });
        };
        let mut token = token.clone();
        token.set_sensitive(true);
        self.credential = Some((TOKEN, token));
        self.session = self.elsewhere(&response).ok();
        Ok(())
    }

    async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&Json>,
    ) -> Result<Response<Bytes>, DeviceError> {
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
        self.link.send(request).await
    }

    /// Where a response points to, if that is a place of this service.
    fn elsewhere(&self, response: &Response<Bytes>) -> Result<String, DeviceError> {
        let location = response.headers().get(LOCATION).and_then(|location| location.to_str().ok());
        let location = location.and_then(|location| location.parse::<Uri>().ok()).unwrap_or_default();
        let here = location.authority().is_none_or(|authority| *authority == self.parameters.authority);
        let secure = location.scheme_str().is_none_or(|scheme| scheme == "https");
        if here && secure && location.path().starts_with("/redfish/") {
            return Ok(location.path().to_owned());
        }
        let said = format!("it points to {location}, which is not followed; correct the address");
        Err(DeviceError::Failed { said })
    }

    /// A refusal as an error, in the service's own words.
    fn accepted(&self, path: &str, response: &Response<Bytes>) -> Result<(), DeviceError> {
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        let reason = object::<Refusal>(response.body()).unwrap_or_default().text();
        let said = format!("{path}: {status}: {reason}");
        Err(match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => DeviceError::Login { said },
            _ => DeviceError::Failed { said },
        })
    }
}

/// What an object says. Of a list serde would take the fields by their order.
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

/// How services say why not.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Refusal {
    error: Reason,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Reason {
    message: Option<String>,
    #[serde(rename = "@Message.ExtendedInfo")]
    more: Vec<Message>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Message {
    #[serde(rename = "Message")]
    message: Option<String>,
}

impl Refusal {
    pub(super) fn text(self) -> String {
        let Reason { message, more } = self.error;
        let texts = message.into_iter().chain(more.into_iter().filter_map(|more| more.message));
        texts.collect::<Vec<_>>().join("; ")
    }
}
